// Selection by the size of a linear learner's weights (Algorithms 4 to 6), for a group of COUNT threads.
//
// weights[FEATURES] and position[FEATURES] (place in the selected list, NOWHERE if not
// selected) lie in shared memory when they fit. Top-k asks for the least useful selected and the most useful other
// feature. Per block of features there is a lower bound of the former and an upper bound of the latter. A step changes
// only the weights of active features, which can move the bounds of their blocks outwards. One warp then looks for the
// widest bounds: while they do not cross there is nothing to swap; else it makes those two tight, and looks again.
// Decisions are always exact.

constexpr int FEATURE_BLOCK = FEATURES > 4096 ? power_of_two_from(divide_up(FEATURES, 64)) : 64;  // at most 64 blocks
constexpr int FEATURE_BLOCKS = divide_up(FEATURES, FEATURE_BLOCK);

struct Extremes {
  u32 low_bits, low, high_bits, high;  // |w| as its bits, which order like the number; feature, known if these cross
};

struct Selection {
  u32 low[FEATURE_BLOCKS], high[FEATURE_BLOCKS];  // bounds of |w| as its bits
  Extremes extremes;                              // of the weights after the last step
};

template <typename Position>
__device__ constexpr Position nowhere() {
  return (Position)~(Position)0;
}

// Algorithm 6, incremental_top_k: does the best other feature beat the worst selected one?
__device__ __forceinline__ bool incremental_top_k(const Extremes& extremes, float threshold) {
  return __uint_as_float(extremes.low_bits) + threshold < __uint_as_float(extremes.high_bits);
}

enum Side { LOW, HIGH };  // of the selected features the least, of the others the greatest

struct Bound {
  u32 bits, where;  // |w|; a block, or a feature
};

template <Side SIDE>
__device__ __forceinline__ Bound no_bound() {
  return {SIDE == HIGH ? 0u : 0xffffffffu, 0xffffffffu};
}

template <Side SIDE>
__device__ __forceinline__ void widen(Bound& bound, u32 bits, u32 where) {
  if (SIDE == HIGH ? bits > bound.bits : bits < bound.bits) bound = {bits, where};
}

// The widest bound of the lanes, the first among equals, as in the reference.
template <Side SIDE>
__device__ __forceinline__ Bound widest(const Bound& mine) {
  const u32 bits = SIDE == HIGH ? __reduce_max_sync(EVERY_LANE, mine.bits) : __reduce_min_sync(EVERY_LANE, mine.bits);
  return {bits, __reduce_min_sync(EVERY_LANE, mine.bits == bits ? mine.where : 0xffffffffu)};
}

// The block with the widest bound, by a warp.
template <Side SIDE>
__device__ __forceinline__ Bound widest_block(const u32* bounds, int lane) {
  Bound mine = no_bound<SIDE>();
#pragma unroll
  for (int k = 0; k < FEATURE_BLOCKS; k += 32)
    if (k + lane < FEATURE_BLOCKS) widen<SIDE>(mine, bounds[k + lane], k + lane);
  return widest<SIDE>(mine);
}

// The extreme feature of a block, by a warp.
template <Side SIDE, typename Position>
__device__ __forceinline__ Bound scan_block(const float* weights, const Position* position, int block, int lane) {
  Bound mine = no_bound<SIDE>();
#pragma unroll
  for (int k = 0; k < FEATURE_BLOCK; k += 32) {
    const int f = block * FEATURE_BLOCK + k + lane;
    if (f < FEATURES && (position[f] == nowhere<Position>()) == (SIDE == HIGH))
      widen<SIDE>(mine, __float_as_uint(fabsf(weights[f])), f);
  }
  return widest<SIDE>(mine);
}

// Tight bounds for all blocks; also a barrier, at the end.
template <int COUNT, typename Position>
__device__ __forceinline__ void bound_blocks(const float* weights, const Position* position, Selection& s, int rank,
                                             int barrier) {
  const int lane = rank % 32;
  for (int block = rank / 32; block < FEATURE_BLOCKS; block += COUNT / 32) {
    u32 low = no_bound<LOW>().bits, high = no_bound<HIGH>().bits;
#pragma unroll
    for (int k = 0; k < FEATURE_BLOCK; k += 32) {
      const int f = block * FEATURE_BLOCK + k + lane;
      if (f < FEATURES) {
        const u32 bits = __float_as_uint(fabsf(weights[f]));
        const bool other = position[f] == nowhere<Position>();
        low = other ? low : min(low, bits), high = other ? max(high, bits) : high;
      }
    }
    low = __reduce_min_sync(EVERY_LANE, low), high = __reduce_max_sync(EVERY_LANE, high);
    if (lane == 0) s.low[block] = low, s.high[block] = high;
  }
  group_sync<COUNT>(barrier);
}

// By one warp: extremes that cross are exact; others are bounds, which is enough to know that they do not.
template <typename Position>
__device__ __forceinline__ void find_extremes(const float* weights, const Position* position, float threshold,
                                              Selection& s, int lane) {
  while (true) {
    const Bound low_block = widest_block<LOW>(s.low, lane), high_block = widest_block<HIGH>(s.high, lane);
    Extremes found = {low_block.bits, 0u, high_block.bits, 0u};
    bool tight = true;
    if (incremental_top_k(found, threshold)) {
      const Bound low = scan_block<LOW>(weights, position, low_block.where, lane);
      const Bound high = scan_block<HIGH>(weights, position, high_block.where, lane);
      found.low = low.where, found.high = high.where;
      tight = low.bits == low_block.bits && high.bits == high_block.bits;
      if (lane == 0) s.low[low_block.where] = low.bits, s.high[high_block.where] = high.bits;
      __syncwarp();
    }
    if (tight) {
      if (lane == 0) s.extremes = found;
      return;
    }
  }
}

// The bounds when the extremes have changed places, by one thread.
__device__ __forceinline__ void follow_swap(Selection& s) {
  const Extremes e = s.extremes;
  u32 &low = s.low[e.high / FEATURE_BLOCK], &high = s.high[e.low / FEATURE_BLOCK];
  low = min(low, e.high_bits), high = max(high, e.low_bits);
}

// The linear update w += alpha * error * x_t (plain), or with momentum over all features. `active` is x_t.
// The first warp finds the extremes: they are there for it at once, for others after the next barrier.
template <int COUNT, typename Position>
__device__ __forceinline__ void update_linear(float* weights, float* momentum, const Position* position,
                                              const Slot* active, float error, float alpha, float nu, float threshold,
                                              Selection& s, int rank, int barrier) {
  if constexpr (LINEAR_MOMENTUM) {
    for (int f = rank; f < FEATURES; f += COUNT) momentum[f] *= nu;
    group_sync<COUNT>(barrier);
#pragma unroll
    for (int c = 0; c < chunks<COUNT>(); ++c) {
      const int f = feature_at<COUNT>(active, c, rank);
      if (f >= 0) momentum[f] -= (1.0f - nu) * error;
    }
    group_sync<COUNT>(barrier);
    for (int f = rank; f < FEATURES; f += COUNT) weights[f] -= alpha * momentum[f];
    group_sync<COUNT>(barrier);
    bound_blocks<COUNT>(weights, position, s, rank, barrier);
  } else {
    const float change = alpha * error;
#pragma unroll
    for (int c = 0; c < chunks<COUNT>(); ++c) {
      const int f = feature_at<COUNT>(active, c, rank);
      if (f >= 0) {
        const float w = weights[f] + change;
        weights[f] = w;
        const u32 bits = __float_as_uint(fabsf(w));
        if (position[f] == nowhere<Position>()) {
          atomicMax(&s.high[f / FEATURE_BLOCK], bits);
        } else {
          atomicMin(&s.low[f / FEATURE_BLOCK], bits);
        }
      }
    }
    group_sync<COUNT>(barrier);
  }
  if (rank < 32) find_extremes(weights, position, threshold, s, rank);
}
