// SPDX-License-Identifier: Apache-2.0
// Which of the handlers' builds this host executes.
#include "softgpu/ptx/exec/selectors.h"

#include <cstdlib>
#include <string_view>

namespace millpond::softgpu::ptx {

namespace exec_baseline {
extern const Selectors kSelectors;
}
#ifdef MILLPOND_EXEC_V3
namespace exec_v3 {
extern const Selectors kSelectors;
}
#endif

const Selectors& selectors() {
  static const Selectors* const chosen = [] {
#ifdef MILLPOND_EXEC_V3
    const char* wish = std::getenv("MILLPOND_SOFTGPU_ISA");
    bool isBaseline = wish && std::string_view(wish) == "baseline";
    bool hasV3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                 __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe") &&
                 __builtin_cpu_supports("f16c");
    if (hasV3 && !isBaseline) return &exec_v3::kSelectors;
#endif
    return &exec_baseline::kSelectors;
  }();
  return *chosen;
}

}  // namespace millpond::softgpu::ptx
