// SPDX-License-Identifier: Apache-2.0

// How programs on other machines use this pool: commands to be copied, with the pool's address.

import { Field } from "../parts/field.tsx";
import { readableSize, SizeFields } from "../parts/size.tsx";
import { Command, View } from "../parts/view.tsx";
import { setQuery, usePlace } from "../state/place.ts";
import { texts } from "../texts/texts.ts";

/** The path in a package, and in an archive at its usual location. */
const directory = "/usr/lib/millpond/build/native/release/client";

interface Choice {
  readonly gpus: string;
  readonly memory: string;
  readonly compute: string;
  readonly image: string;
}

interface Snippet {
  readonly title: string;
  readonly note: string;
  readonly text: string;
}

function snippetsOf(address: string, { gpus, memory, compute, image }: Choice): readonly Snippet[] {
  const { connect: t } = texts();
  const count = gpus === "" ? "1" : gpus;
  const isEncrypted = address.startsWith("https:");
  const share = compute.replace(/%$/, "");
  const options = [`-n ${count}`, memory && `-m ${memory}`, share && `-c ${share}`].filter(Boolean).join(" ");
  const variables: readonly (readonly [string, string])[] = [
    ["MILLPOND_CONTROLLER", address],
    ["MILLPOND_GPUS", count],
    ...(memory === "" ? [] : ([["MILLPOND_MEMORY", memory]] as const)),
    ...(share === "" ? [] : ([["MILLPOND_COMPUTE", share]] as const)),
  ];
  const python = [
    `gpus=${count}`,
    memory && `memory=${JSON.stringify(memory)}`,
    share && `compute=${share}`,
  ].filter(Boolean);
  // The address may come from anyone's link: only an image reference is copied into commands.
  const where = /^[a-z0-9][\w./:@-]*$/i.test(image) ? image : "IMAGE";
  const limits = [
    `millpond.dev/vgpu: ${count}`,
    memory && `millpond.dev/memory: ${memory}`,
    share && `millpond.dev/compute: ${share}`,
  ].filter(Boolean);
  return [
    {
      title: t.shell,
      note: t.shellNote,
      text: `millpond login ${address}\nmillpond run ${options} -- python train.py`,
    },
    {
      title: t.container,
      note: t.containerNote,
      text: [
        "docker run --rm \\",
        `  -v ${directory}:/millpond:ro \\`,
        "  -e LD_LIBRARY_PATH=/millpond \\",
        ...variables.map(([name, value]) => `  -e ${name}=${value} \\`),
        `  -e MILLPOND_TOKEN${isEncrypted ? " -e MILLPOND_CA" : ""} ${where} python train.py`,
      ].join("\n"),
    },
    {
      title: t.compose,
      note: t.composeNote,
      text: [
        "services:",
        "  train:",
        `    image: ${where}`,
        "    volumes:",
        `      - ${directory}:/millpond:ro`,
        "    environment:",
        "      LD_LIBRARY_PATH: /millpond",
        ...variables.map(([name, value]) => `      ${name}: "${value}"`),
        "      MILLPOND_TOKEN:",
        ...(isEncrypted ? ["      MILLPOND_CA:"] : []),
      ].join("\n"),
    },
    {
      title: "Kubernetes",
      note: t.kubernetesNote,
      text: [
        "apiVersion: v1",
        "kind: Pod",
        "metadata: { name: train }",
        "spec:",
        "  containers:",
        "    - name: main",
        `      image: ${where}`,
        "      resources:",
        "        limits:",
        ...limits.map((limit) => `          ${limit}`),
      ].join("\n"),
    },
    {
      title: t.notebook,
      note: t.notebookNote,
      text: `import millpond\n\nclaim = millpond.claim(${python.join(", ")}).activate()\nimport torch`,
    },
  ];
}

export function ConnectView() {
  const t = texts();
  const { query } = usePlace();
  const of = (key: string) => query.get(key) ?? "";
  const choice = { gpus: of("n"), memory: of("m"), compute: of("c"), image: of("image") };
  return (
    <View title={t.views.connect} command={`millpond login ${location.origin}`}>
      <section class="panel" aria-label={t.details}>
        <div class="inline-form">
          <SizeFields
            of={choice}
            onChange={({ gpus, memory, compute }) => setQuery({ n: gpus, m: memory, c: compute })}
          />
          <Field
            label={t.connect.image}
            value={choice.image}
            onChange={(image) => setQuery({ image })}
            placeholder="registry.example.org/train"
          />
        </div>
        <p class="quiet">{t.connect.token}</p>
      </section>
      <div class="snippets">
        {snippetsOf(location.origin, { ...readableSize(choice), image: choice.image }).map(
          ({ title, note, text }) => (
            <section class="panel snippet" aria-label={title} key={title}>
              <h2>{title}</h2>
              <p class="quiet">{note}</p>
              <Command text={text} />
            </section>
          ),
        )}
      </div>
    </View>
  );
}
