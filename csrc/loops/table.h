// Included last by every instruction set: its loops as a table.
#pragma once
#include "loops/adacomp.h"
#include "loops/cast.h"
#include "loops/factor.h"
#include "loops/fold.h"
#include "loops/low_rank.h"
#include "loops/natural.h"
#include "loops/orthonormal.h"
#include "loops/quantize.h"
#include "loops/sign.h"
#include "loops/sparse.h"
#include "loops/ternary.h"

namespace {

constexpr laconic::Table loops(const char* name) {
  return {
      name,          energy_loop,  fold_loop,   settle_loop,      quantize_loop, dequantize_loop, quantize_errors_loop,
      collect_loop,  count_at_least_loop,       survey_loop,      sign_loop,     unsign_from_loop, unsign_loop,
      narrow_loop,   widen_loop,   natural_loop, unnatural_loop,  choose_in_bins_loop,
      take_chosen_loop, ternary_loop, unternary_loop, fold_times_loop, times_loop,
      fold_times_back_loop, times_back_loop, add_product_loop, orthonormal_loop,
      column_scales_loop, code_factor_loop, add_factor_loop,
  };
}

}  // namespace
