#include "simd/neon.h"

#include "loops/table.h"

namespace laconic {
extern const Table neon_table;
const Table neon_table = loops("neon");
}  // namespace laconic
