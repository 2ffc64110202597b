// SPDX-License-Identifier: Apache-2.0
// Texts that would do something where a page takes them for more than text, and the places where it showed them.
import type { DescField, DescMessage, Message } from "@bufbuild/protobuf";
import type { Page } from "playwright-core";
import type { Random } from "../support/random.ts";

/** Each reveals by a dialog, a request, an element or a file that it was interpreted as more than text. */
const parts = [
  "<img src=x onerror=alert(1)>",
  "<script>alert(2)</script>",
  "</title></script></style><svg/onload=alert(3)>",
  `" onmouseover="alert(4)" autofocus onfocus="alert(5)`,
  "' style='background:url(https://evil.example/a)' x='",
  "<iframe srcdoc='<script>parent.alert(6)</script>'></iframe>",
  "<base href=https://evil.example/><form action=https://evil.example/><button>go</button></form>",
  "javascript:alert(7)",
  "data:text/html,<script>alert(8)</script>",
  "//evil.example/b",
  "<link rel=stylesheet href=https://evil.example/c>",
  "{{constructor.constructor('alert(9)')()}}",
  "${alert(10)}",
  "&lt;b&gt; &amp;amp; &#60;",
  "<!-- --!> ]]>",
  "<details open ontoggle=alert(11)>",
  "%3Cscript%3Ealert(12)%3C/script%3E",
  "__proto__",
  "constructor",
  "\u202egnp.exe\u202c",
  "\u001b[31m\u0007",
  '=HYPERLINK("https://evil.example/d")',
  "; >pwned;",
  "$(>pwned)",
  "`>pwned`",
  "'\n>pwned\n'",
  "x".repeat(300),
  "风扇🔥e\u0301",
] as const;

/** Texts that contain a number, by which they are found again. */
export class HostileTexts {
  readonly #random: Random;
  readonly #made: string[] = [];
  /** By number: the member of a message into which each text was put. */
  readonly #members: string[] = [];

  constructor(random: Random) {
    this.#random = random;
  }

  /** @param member The member for which it is, such as `Claim.owner`. */
  make(member: string): string {
    const count = 1 + Math.floor(this.#random.next() * 3);
    const own = Array.from({ length: count }, () => this.#random.pick(parts));
    const at = Math.floor(this.#random.next() * (count + 1));
    const text = own.toSpliced(at, 0, `⟦${this.#made.length}⟧`).join(" ");
    this.#made.push(text);
    this.#members.push(member);
    return text;
  }

  /** Replaces each text of a message, and of its nested messages. */
  spoil(type: DescMessage, message: Message): void {
    const members = message as unknown as Record<string, unknown>;
    for (const field of type.fields) {
      members[field.localName] = this.#spoilField(type, field, members[field.localName]);
    }
  }

  #spoilField(type: DescMessage, field: DescField, value: unknown): unknown {
    const member = `${type.name}.${field.localName}`;
    const one = (each: unknown): unknown => {
      // A google.protobuf.Struct is plain JSON here.
      if (field.message?.typeName === "google.protobuf.Struct") return this.#spoilJson(member, each);
      if (field.message !== undefined) {
        if (each !== undefined) this.spoil(field.message, each as Message);
        return each;
      }
      return typeof each === "string" ? this.#changed(member, each) : each;
    };
    switch (field.fieldKind) {
      case "list":
        return (value as readonly unknown[]).map(one);
      case "map": {
        const entries = Object.entries(value as Readonly<Record<string, unknown>>);
        return Object.fromEntries(
          [...entries, ...(field.scalar === undefined ? [] : [["", ""] as const])].map(([, each]) => [
            this.make(`${member} (key)`),
            one(each),
          ]),
        );
      }
      default:
        return one(value);
    }
  }

  #spoilJson(member: string, value: unknown): unknown {
    if (typeof value === "string") return this.make(member);
    if (Array.isArray(value)) return value.map((each) => this.#spoilJson(member, each));
    return typeof value === "object" && value !== null
      ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, this.#spoilJson(member, each)]))
      : value;
  }

  /** Half of the subjects keep their kind, from which pages create links, and some empty texts stay empty. */
  #changed(member: string, before: string): string {
    if (before === "" && this.#random.chance(0.3)) return "";
    const kind = /^[a-z]+\//.exec(before)?.[0] ?? "";
    return (this.#random.chance(0.5) ? kind : "") + this.make(member);
  }

  /**
   * Finds the texts in the page.
   *
   * @returns The members to which they belong
   * @throws Error for a text that is not shown verbatim
   */
  find(shown: readonly string[]): Set<string> {
    const members = new Set<string>();
    for (const text of shown) {
      for (const [, digits] of text.matchAll(/⟦(\d+)⟧/g)) {
        const number = Number(digits);
        const made = this.#made[number] ?? "";
        const member = this.#members[number] ?? "";
        if (!text.includes(made)) throw new Error(`${member} is ${made}, and shown as ${text}`);
        members.add(member);
      }
    }
    return members;
  }
}

/** Everything that can be read in a page, and everything that no text from others may have created. */
export interface PageContent {
  readonly texts: readonly string[];
  readonly foreign: readonly string[];
}

/** Runs in the page. The elements and attributes that the console uses, and the addresses to which it may link. */
const look = `(() => {
  const elements = new Set(("html head meta title link script noscript body div main nav header section form dialog table thead tbody tr th td " +
    "p h1 h2 h3 ul ol li dl dt dd span strong code figure figcaption small em label input select option button a img svg g rect line path text pattern defs")
    .split(" "));
  const texts = [];
  const foreign = [];
  for (const element of document.querySelectorAll("*")) {
    const said = element.outerHTML.slice(0, 300);
    if (!elements.has(element.localName)) foreign.push(said);
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on") || name === "srcdoc" || name === "action" || name === "autofocus") foreign.push(said);
      if (name !== "href" && name !== "src") texts.push(value);
      else if (new URL(value, location.href).origin !== location.origin) foreign.push(said);
      else if (element.localName === "a" && !value.startsWith("/console/") && value !== "#content") foreign.push(said);
      else if (element.localName === "img" && value !== "/console/icon.svg") foreign.push(said);
    }
    if (element.localName === "input") texts.push(element.value);
    if (element.localName === "script" && !element.src.startsWith(location.origin + "/console/")) foreign.push(said);
    if ([...element.childNodes].some(({ nodeType }) => nodeType === Node.TEXT_NODE)) texts.push(element.textContent);
  }
  return { texts, foreign };
})()`;

export async function contentOf(page: Page): Promise<PageContent> {
  return await page.evaluate<PageContent>(look);
}
