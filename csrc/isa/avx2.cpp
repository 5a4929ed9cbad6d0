#include "simd/avx2.h"

#include "loops/table.h"

namespace laconic {
extern const Table avx2_table;
const Table avx2_table = loops("avx2");
}  // namespace laconic
