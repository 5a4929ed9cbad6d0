#include "simd/generic.h"

#include "loops/table.h"

namespace laconic {
extern const Table generic_table;
const Table generic_table = loops("generic");
}  // namespace laconic
