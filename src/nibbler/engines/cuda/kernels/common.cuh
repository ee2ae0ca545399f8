// What all kernels share: groups of warps, Philox, sums over a warp, the decay of untouched momentum.
//
// Compiled at run time by NVRTC with the sizes of the problem as macros (see ../device.py), so that every
// loop over units, actions or slots has a known length.

constexpr u32 EVERY_LANE = 0xffffffffu;

// streams of random numbers, as in nibbler.mdp.philox
constexpr u32 STREAM_TRANSITION = 0;
constexpr u32 STREAM_ACTION = 1;
constexpr u32 STREAM_HIDDEN = 4;

__host__ __device__ constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }
__host__ __device__ constexpr int divide_up(int value, int by) { return (value + by - 1) / by; }
__host__ __device__ constexpr int power_of_two_from(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

// ---- groups: consecutive warps that synchronise among themselves through a named barrier ----

template <int COUNT>
__device__ __forceinline__ void group_sync(int barrier) {
  if constexpr (COUNT == 32) {
    __syncwarp();
  } else {
    barrier_sync<COUNT>(barrier);
  }
}

// Passed twice. Once would do, but then racecheck takes what is read behind this barrier for a race (docs/cuda.md), and
// would not be heard when it finds one.
template <int COUNT>
__device__ __forceinline__ void group_sync_twice(int barrier) {
  group_sync<COUNT>(barrier);
  group_sync<COUNT>(barrier);
}

// ---- Philox4x32-10, keyed by (seed, stream), counted by (step, slot) ----

__device__ inline uint4 draw(u64 seed, u32 stream, u64 step, u32 slot) {
  uint4 counter = make_uint4((u32)step, (u32)(step >> 32), slot, (u32)(seed >> 32));
  u32 key_0 = (u32)seed, key_1 = stream;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high_0 = __umulhi(0xD2511F53u, counter.x), low_0 = 0xD2511F53u * counter.x;
    const u32 high_1 = __umulhi(0xCD9E8D57u, counter.z), low_1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high_1 ^ counter.y ^ key_0, low_1, high_0 ^ counter.w ^ key_1, low_0);
    key_0 += 0x9E3779B9u;
    key_1 += 0xBB67AE85u;
  }
  return counter;
}

__device__ __forceinline__ u32 lane_of(const uint4& words, u32 lane) {
  return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
}

// Epsilon-greedy: the explored action, or -1 to be greedy.
__device__ __forceinline__ int exploring_action(u64 seed, u64 step, u64 epsilon_threshold) {
  const uint4 words = draw(seed, STREAM_ACTION, step, 0);
  return (u64)words.x < epsilon_threshold ? (int)(((u64)words.y * ACTIONS) >> 32) : -1;
}

// ---- sums over a warp ----

// Sums N values (a power of two up to 32) over the warp in N shuffles. The sum of values[i] ends in
// values[0] of the lanes for which owned_sum<N>(lane) == i.
template <int N>
__device__ __forceinline__ void warp_sums(float (&values)[N], int lane) {
#pragma unroll
  for (int half = N / 2, bit = 16; bit >= 1; half /= 2, bit /= 2) {
    if (half >= 1) {
      const bool upper = lane & bit;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float send = upper ? values[i] : values[i + half];
        const float keep = upper ? values[i + half] : values[i];
        values[i] = keep + __shfl_xor_sync(EVERY_LANE, send, bit);
      }
    } else {
      values[0] += __shfl_xor_sync(EVERY_LANE, values[0], bit);
    }
  }
}

template <int N>
__device__ __forceinline__ int owned_sum(int lane) {
  int index = 0;
#pragma unroll
  for (int half = N / 2, bit = 16; half >= 1; half /= 2, bit /= 2) index += (lane & bit) ? half : 0;
  return index;
}

// The first lane of those that hold the same sum, which writes it.
template <int N>
__device__ __forceinline__ bool writes_sum(int lane) {
  return (lane & (32 / N - 1)) == 0;
}

__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int bit = 16; bit >= 1; bit /= 2) value += __shfl_xor_sync(EVERY_LANE, value, bit);
  return value;
}

// ---- momentum of a weight that had no gradient for `steps` steps, in closed form ----
// w -= alpha * m * sum, m *= power, with power = nu^steps and sum = nu + nu^2 + ... + nu^steps. Both are put together
// from two small tables on chip, of steps below 64 and of multiples of 64.

struct Decay {
  float power, sum;
};

constexpr u32 DECAY_LOW = 64, DECAY_HIGH = 256;

struct DecayTable {
  Decay low[DECAY_LOW], high[DECAY_HIGH];
};

__device__ __noinline__ Decay long_decay(float nu, u32 steps) {
  const float power = powf(nu, (float)steps);
  return {power, nu * (1.0f - power) / (1.0f - nu)};
}

__device__ __forceinline__ Decay decay_over(const DecayTable& table, float nu, u32 steps) {
  const Decay low = table.low[steps % DECAY_LOW], high = table.high[min(steps / DECAY_LOW, DECAY_HIGH - 1u)];
  Decay decay = {high.power * low.power, fmaf(high.power, low.sum, high.sum)};
  if (steps >= DECAY_LOW * DECAY_HIGH) decay = long_decay(nu, steps);
  return decay;
}

// By all threads of a block; the caller synchronises.
__device__ __forceinline__ void load_decay(DecayTable& table, const Decay* global, int rank, int count) {
  for (int k = rank; k < (int)(DECAY_LOW + DECAY_HIGH); k += count) {
    Decay* place = k < (int)DECAY_LOW ? table.low + k : table.high + (k - (int)DECAY_LOW);
    *place = global[k];
  }
}

// ---- a thread's share of a vector over hidden units: UNITS consecutive floats ----

struct alignas(UNITS >= 4 ? 16 : 4 * UNITS) Units {
  float x[UNITS];
};

__device__ __forceinline__ Units zero_units() {
  Units units;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) units.x[u] = 0.0f;
  return units;
}

__device__ __forceinline__ Units load_units(const float* address) {
  const Units units = *reinterpret_cast<const Units*>(address);
  others_may_run();
  return units;
}

__device__ __forceinline__ void store_units(float* address, const Units& units) {
  *reinterpret_cast<Units*>(address) = units;
}

__device__ __forceinline__ float dot_units(const Units& a, const Units& b) {
  float sum = 0.0f;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) sum = fmaf(a.x[u], b.x[u], sum);
  return sum;
}

// Algorithm 7, co_opt: one step of SGD with momentum for the gradient -error * features.
__device__ __forceinline__ void co_opt(Units& w, Units& momentum, const Units& features, float error, float alpha,
                                       float nu) {
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    momentum.x[u] = nu * momentum.x[u] - (1.0f - nu) * (error * features.x[u]);
    w.x[u] -= alpha * momentum.x[u];
  }
}

// What differs between the runs of one launch.
struct Scalars {
  u64 seed;
  u64 step;               // clock at the start of the launch
  u64 epsilon_threshold;  // round(epsilon * 2^32)
  int action;             // a_t at the start of the launch
  int environment;        // index into the launch's environments
  float gamma;
  float nu;
  float linear_nu;
  float alpha_main;
  float alpha_answer;
  float alpha_linear;
  float input_threshold;
  float cumulant_threshold;
};
