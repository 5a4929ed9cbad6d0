#include "simd/avx512.h"

#include "loops/table.h"

namespace laconic {
extern const Table avx512_table;
const Table avx512_table = loops("avx512");
}  // namespace laconic
