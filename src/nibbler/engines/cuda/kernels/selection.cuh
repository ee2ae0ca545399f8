// Selection by the size of a linear learner's weights (Algorithms 4 to 6), for a group of COUNT threads.
//
// A learner has a weight for every feature, in shared memory when they fit; N learners may have theirs side by side. Top-k
// asks for the least useful selected and the most useful other feature. There is a lower bound of the former and, per block
// of features, an upper bound of the latter. A step changes only the weights of active features, which can move these
// bounds outwards. One warp then looks whether they cross: while they do not there is nothing to swap; else it looks up the
// weights of all selected features and of the block with the greatest bound, and looks again. Decisions are always exact.

constexpr int FEATURE_BLOCK = FEATURES > 4096 ? power_of_two_from(divide_up(FEATURES, 64)) : 64;  // at most 64 blocks
constexpr int FEATURE_BLOCKS = divide_up(FEATURES, FEATURE_BLOCK);

struct Extremes {
  u32 low_bits, low, high_bits, high;  // |w| as its bits, which order like the number; feature, known if these cross
};

struct Selection {
  FeatureSet selected;
  u32 low, high[FEATURE_BLOCKS];  // bounds of |w| as its bits
  Extremes extremes;              // of the weights after the last step
};

// The weights of one learner among N whose weights lie side by side.
template <int N>
struct Column {
  const float* first;
  __device__ __forceinline__ float operator[](int feature) const { return first[feature * N]; }
};

// The weights of N learners for one feature, side by side.
template <int N>
struct alignas(N >= 4 ? 16 : 4 * N) Weights {
  float x[N];
};
template <int N>
__device__ __forceinline__ Weights<N>& weights_of(float* first, int feature) {
  return reinterpret_cast<Weights<N>*>(first)[feature];
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

// The first place among equals, as in the reference: of others, which come in order, and of selected ones, which do not.
template <Side SIDE>
__device__ __forceinline__ void widen(Bound& bound, u32 bits, u32 where) {
  const bool wider = SIDE == HIGH ? bits > bound.bits
                                  : bits < bound.bits || (bits == bound.bits && where < bound.where);
  if (wider) bound = {bits, where};
}

// The widest bound of the lanes.
template <Side SIDE>
__device__ __forceinline__ Bound widest(const Bound& mine) {
  const u32 bits = SIDE == HIGH ? __reduce_max_sync(EVERY_LANE, mine.bits) : __reduce_min_sync(EVERY_LANE, mine.bits);
  return {bits, __reduce_min_sync(EVERY_LANE, mine.bits == bits ? mine.where : 0xffffffffu)};
}

// The block with the greatest bound, by a warp.
__device__ __forceinline__ Bound widest_block(const u32* bounds, int lane) {
  Bound mine = no_bound<HIGH>();
#pragma unroll
  for (int k = 0; k < FEATURE_BLOCKS; k += 32)
    if (k + lane < FEATURE_BLOCKS) widen<HIGH>(mine, bounds[k + lane], k + lane);
  return widest<HIGH>(mine);
}

// A lane's weights of a block, all on their way at once: they may be far.
struct BlockWeights {
  float x[FEATURE_BLOCK / 32];
};
template <int N>
__device__ __forceinline__ BlockWeights load_block(const Column<N>& weights, int block, int lane) {
  BlockWeights loaded;
#pragma unroll
  for (int k = 0; k < FEATURE_BLOCK / 32; ++k)
    loaded.x[k] = weights[min(block * FEATURE_BLOCK + 32 * k + lane, FEATURES - 1)];
  return loaded;
}

// The most useful feature of a block that is not selected, by a warp.
__device__ __forceinline__ Bound best_other(const BlockWeights& weights, const FeatureSet& selected, int block, int lane) {
  Bound mine = no_bound<HIGH>();
#pragma unroll
  for (int k = 0; k < FEATURE_BLOCK / 32; ++k) {
    const int f = block * FEATURE_BLOCK + 32 * k + lane;
    if (f < FEATURES && !selected.has(f)) widen<HIGH>(mine, __float_as_uint(fabsf(weights.x[k])), f);
  }
  return widest<HIGH>(mine);
}

// Tight bounds for all blocks, and none for what is selected; also a barrier, at the end.
template <int COUNT, int N>
__device__ __forceinline__ void bound_blocks(const Column<N>& weights, Selection& s, int rank, int barrier) {
  const int lane = rank % 32;
  for (int block = rank / 32; block < FEATURE_BLOCKS; block += COUNT / 32) {
    const Bound best = best_other(load_block(weights, block, lane), s.selected, block, lane);
    if (lane == 0) s.high[block] = best.bits;
  }
  if (rank == 0) s.low = 0u;
  group_sync<COUNT>(barrier);
}

// By one warp: extremes that cross are exact; others are bounds, which is enough to know that they do not. `listed` are the
// selected features.
template <int N, int LISTED>
__device__ __forceinline__ void find_extremes(const Column<N>& weights, const Feature (&listed)[LISTED], float threshold,
                                              Selection& s, int lane) {
  Bound low = {s.low, 0u}, best = no_bound<HIGH>();
  u32 visited = 0xffffffffu;  // the block that `best` is of
  while (true) {
    const Bound block = widest_block(s.high, lane);
    const Extremes found = {low.bits, low.where, block.bits, best.where};
    const bool known = block.where == visited || !incremental_top_k(found, threshold);
    __syncwarp();  // all lanes have read the bounds
    if (known) {
      if (lane == 0) s.extremes = found, s.low = low.bits;
      __syncwarp();
      return;
    }
    visited = block.where;
    constexpr int PARTS = divide_up(LISTED, 32);
    float of_listed[PARTS];  // all weights on their way at once
#pragma unroll
    for (int k = 0; k < PARTS; ++k) of_listed[k] = weights[listed[min(32 * k + lane, LISTED - 1)]];
    const BlockWeights of_block = load_block(weights, (int)visited, lane);
    low = no_bound<LOW>();
#pragma unroll
    for (int k = 0; k < PARTS; ++k)
      if (32 * k + lane < LISTED) widen<LOW>(low, __float_as_uint(fabsf(of_listed[k])), listed[32 * k + lane]);
    low = widest<LOW>(low);
    best = best_other(of_block, s.selected, (int)visited, lane);
    if (lane == 0) s.high[visited] = best.bits;
    __syncwarp();
  }
}

// The extremes have changed places; by one thread.
__device__ __forceinline__ void follow_swap(Selection& s) {
  const Extremes e = s.extremes;
  u32& high = s.high[e.low / FEATURE_BLOCK];
  high = max(high, e.low_bits);  // the other bound stays as it is: what comes in is greater than what goes
  s.selected.remove(e.low);
  s.selected.add(e.high);
}

// The update w += alpha * error * x_t of N learners (plain), or with momentum over all features, by COUNT threads.
// `active` and `present` are x_t; `selection_of(j)` is the selection of learner j, of which there are `learners`.
template <int COUNT, int N, typename SelectionOf>
__device__ __forceinline__ void update_linear(float* weights, float* momentum, const Slot* active,
                                              const FeatureSet& present, const Weights<N> error, int learners,
                                              float alpha, float nu, int rank, SelectionOf selection_of) {
  if constexpr (LINEAR_MOMENTUM) {
    for (int f = rank; f < FEATURES; f += COUNT) {
      const float on = present.has(f) ? 1.0f - nu : 0.0f;
      Weights<N>&w = weights_of<N>(weights, f), &m = weights_of<N>(momentum, f);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        m.x[j] = nu * m.x[j] - on * error.x[j];
        w.x[j] -= alpha * m.x[j];
      }
    }
  } else {
    constexpr int CHUNKS = chunks<COUNT>();
    Weights<N> w[CHUNKS];
    u32 low[N];  // the least of this thread's selected features
#pragma unroll
    for (int j = 0; j < N; ++j) low[j] = no_bound<LOW>().bits;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {  // all loads at once
      const int f = feature_at<COUNT>(active, c, rank);
      if (f >= 0) w[c] = weights_of<N>(weights, f);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const int f = feature_at<COUNT>(active, c, rank);
      if (f >= 0) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          w[c].x[j] += alpha * error.x[j];
          if (j < learners) {
            Selection& s = selection_of(j);
            const u32 bits = __float_as_uint(fabsf(w[c].x[j]));
            if (s.selected.has(f)) {
              low[j] = min(low[j], bits);
            } else {
              atomicMax(&s.high[f / FEATURE_BLOCK], bits);
            }
          }
        }
        weights_of<N>(weights, f) = w[c];
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (low[j] != no_bound<LOW>().bits) atomicMin(&selection_of(j).low, low[j]);
  }
}

// What the next step's choice depends on, after an update and a barrier of all who made it; by the learner's COUNT
// threads. The extremes are there for the first warp at once, for others after the next barrier.
template <int COUNT, int N, int LISTED>
__device__ __forceinline__ void renew_extremes(const Column<N>& weights, const Feature (&listed)[LISTED], float threshold,
                                               Selection& s, int rank, int barrier) {
  if constexpr (LINEAR_MOMENTUM) bound_blocks<COUNT>(weights, s, rank, barrier);
  if (rank < 32) find_extremes(weights, listed, threshold, s, rank);
}
