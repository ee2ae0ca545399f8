// Selection by the size of a linear learner's weights (Algorithms 4 to 6), for a group of COUNT threads.
//
// weights[FEATURES_PADDED] and position[FEATURES_PADDED] (place in the selected list, NOWHERE if not
// selected) lie in shared memory when they fit. `Extremes` holds the least useful selected and the most useful
// other feature, exactly. A step changes only the weights of active features, so the extremes are found
// again, by all threads of the group, only when one of those features could have moved them.

constexpr int FEATURES_PADDED = round_up(FEATURES, 4);

struct Extremes {
  u32 low_bits, low, high_bits, high;  // |w| as its bits, which order like the number; feature index
};

template <typename Position>
__device__ constexpr Position nowhere() {
  return (Position)~(Position)0;
}

// Algorithm 6, incremental_top_k: does the best other feature beat the worst selected one?
__device__ __forceinline__ bool incremental_top_k(const Extremes& extremes, float threshold) {
  return __uint_as_float(extremes.low_bits) + threshold < __uint_as_float(extremes.high_bits);
}

// The places of four consecutive features in one load.
template <typename Position>
struct alignas(4 * sizeof(Position)) FourPositions {
  Position x[4];
};

// Ties go to the lowest feature index, as in the reference. Written without branches: utilities that do not
// take part are moved out of the way (other features count as bits + 1, so that even 0 beats a selected one).
template <int COUNT, typename Position>
__device__ __forceinline__ void find_extremes(const float* weights, const Position* position, Extremes* result,
                                              Extremes* scratch, int rank, int barrier) {
  Extremes mine = {0xffffffffu, 0xffffffffu, 0u, 0xffffffffu};
#pragma unroll 2
  for (int f = rank * 4; f < FEATURES_PADDED; f += COUNT * 4) {
    const float4 w = *reinterpret_cast<const float4*>(weights + f);
    const FourPositions<Position> four = *reinterpret_cast<const FourPositions<Position>*>(position + f);
    const float values[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 bits = __float_as_uint(values[i]) & 0x7fffffffu;
      const bool selected = four.x[i] != nowhere<Position>();
      const u32 as_low = selected ? bits : 0xffffffffu, as_high = selected ? 0u : bits + 1u;
      mine.low = as_low < mine.low_bits ? f + i : mine.low;
      mine.low_bits = min(mine.low_bits, as_low);
      mine.high = as_high > mine.high_bits ? f + i : mine.high;
      mine.high_bits = max(mine.high_bits, as_high);
    }
  }
  auto combine = [](Extremes& e) {
    const u32 low_bits = __reduce_min_sync(EVERY_LANE, e.low_bits);
    const u32 high_bits = __reduce_max_sync(EVERY_LANE, e.high_bits);
    e.low = __reduce_min_sync(EVERY_LANE, e.low_bits == low_bits ? e.low : 0xffffffffu);
    e.high = __reduce_min_sync(EVERY_LANE, e.high_bits == high_bits ? e.high : 0xffffffffu);
    e.low_bits = low_bits, e.high_bits = high_bits;
  };
  combine(mine);
  if constexpr (COUNT > 32) {
    if (rank % 32 == 0) scratch[rank / 32] = mine;
    group_sync<COUNT>(barrier);
    if (rank < 32) {
      mine = {0xffffffffu, 0xffffffffu, 0u, 0xffffffffu};
      if (rank < COUNT / 32) mine = scratch[rank];
      combine(mine);
    }
  }
  if (rank == 0) {
    mine.high_bits = mine.high_bits > 0u ? mine.high_bits - 1u : 0u;
    *result = mine;
  }
  group_sync<COUNT>(barrier);
}

// The linear update w += alpha * error * x_t (plain), or with momentum over all features; the extremes are
// found again where needed. `features` are this thread's slots of x_t. Ends with the group synchronised.
template <int COUNT, int CHUNKS, typename Position>
__device__ __forceinline__ void update_linear(float* weights, float* momentum, const Position* position,
                                              const int (&features)[CHUNKS], float error, float alpha, float nu,
                                              bool swapped, Extremes* extremes, Extremes* scratch, int rank,
                                              int barrier) {
  bool moved = swapped;
  if constexpr (LINEAR_MOMENTUM) {
    for (int f = rank; f < FEATURES; f += COUNT) momentum[f] *= nu;
    group_sync<COUNT>(barrier);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (features[c] >= 0) momentum[features[c]] -= (1.0f - nu) * error;
    group_sync<COUNT>(barrier);
    for (int f = rank; f < FEATURES; f += COUNT) weights[f] -= alpha * momentum[f];
    moved = true;
  } else {
    const Extremes now = *extremes;
    const float change = alpha * error;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 f = (u32)features[c];
      if (features[c] >= 0) {
        const float w = weights[f] + change;
        weights[f] = w;
        const u32 bits = __float_as_uint(fabsf(w));
        const bool selected = position[f] != nowhere<Position>();
        moved |= selected ? bits <= now.low_bits || f == now.low : bits >= now.high_bits || f == now.high;
      }
    }
  }
  if (group_any<COUNT>(moved, barrier)) {
    group_sync<COUNT>(barrier);
    find_extremes<COUNT>(weights, position, extremes, scratch, rank, barrier);
  }
}
