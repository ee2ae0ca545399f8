// The CUDA kernels on a processor: every GPU thread is a fiber, and all fibers of a launch take turns on one thread.
//
// Put in front of a kernel's source. A fiber runs until it must wait for others (a warp's exchange, a barrier, a
// word from another block); then the next one runs. Lanes of a warp meet at every exchange, in any order; a warp that
// is divided there, or a barrier that not all reach, ends in a launch in which nobody can go on, and an error.
//
// The order in which fibers run is free: as they come, backwards, or drawn anew in every round. In drawn orders a fiber
// also loses its turn now and then when it has read weights, so that others write before it does. A kernel that
// is synchronised as it must be gives the same bits in every order.

#include <ucontext.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#define EMULATED
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

struct int4 {
  int x, y, z, w;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulator {

constexpr int LANES = 32, NAMED_BARRIERS = 16;
constexpr size_t STACK = 96 * 1024;

struct Meeting {  // of the lanes of a warp, or of the threads at a barrier; two exchanges alternate
  int arrived = 0;
  unsigned generation = 0;
  uint64_t words[2][LANES];
};

struct Block {
  std::vector<unsigned char> shared;
  std::vector<Meeting> warps, barriers;
  int threads;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Block* block;
  struct {
    unsigned x;
  } thread_index, block_index;
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::vector<Copy> copies;  // that are on their way
  const Meeting* waits_for = nullptr;
  unsigned waits_beyond = 0;  // until its generation is another
  bool done = false;
};

inline Fiber* current = nullptr;
inline ucontext_t scheduler;
inline bool progress = false;  // somebody did something since the last round
inline unsigned order = 0;     // of the fibers: 0 as they come, 1 backwards, else the seed of random orders
inline std::mt19937 random_order;

inline void yield() { swapcontext(&current->context, &scheduler); }

// Arrive at a meeting of `count`; returns the parity of the exchange once all are there.
inline unsigned meet(Meeting& meeting, int count) {
  const unsigned generation = meeting.generation;
  progress = true;
  if (++meeting.arrived == count) {
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    current->waits_for = &meeting;
    current->waits_beyond = generation;
    yield();
    current->waits_for = nullptr;
  }
  return generation & 1;
}

inline Meeting& my_warp() { return current->block->warps[current->thread_index.x / LANES]; }

// Every lane gives a word and gets all 32.
template <typename T>
const uint64_t* exchange(T value) {
  Meeting& warp = my_warp();
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  warp.words[warp.generation & 1][current->thread_index.x % LANES] = word;
  const unsigned parity = meet(warp, LANES);
  return warp.words[parity];
}

template <typename T>
T lane_word(const uint64_t* words, int lane) {
  T value;
  std::memcpy(&value, words + lane, sizeof(T));
  return value;
}

inline void meet_at_barrier(int barrier, int count) { meet(current->block->barriers[barrier], count); }

template <typename Body>
void run_fiber(unsigned low, unsigned high) {
  (*reinterpret_cast<Body*>((uintptr_t)low | (uintptr_t)high << 32))();
  current->done = true;
  yield();
}

// Runs a kernel's body once per thread; returns 0, or 1 if the threads wait for each other for ever.
template <typename Body>
int launch(int blocks, int threads, int shared_bytes, Body body) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // denormals are zero, as with --ftz=true
  std::vector<Block> all_blocks(blocks);
  std::vector<Fiber> fibers((size_t)blocks * threads);
  for (int b = 0; b < blocks; ++b) {
    all_blocks[b].shared.assign(shared_bytes + 16, 0xff);  // nobody may rely on zeros
    all_blocks[b].warps.resize(threads / LANES);
    all_blocks[b].barriers.resize(NAMED_BARRIERS);
    all_blocks[b].threads = threads;
  }
  for (size_t i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.block = &all_blocks[i / threads];
    fiber.block_index.x = (unsigned)(i / threads), fiber.thread_index.x = (unsigned)(i % threads);
    fiber.stack.reset(new char[STACK]);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    const uintptr_t address = (uintptr_t)&body;
    makecontext(&fiber.context, (void (*)())run_fiber<Body>, 2, (unsigned)address, (unsigned)(address >> 32));
  }
  std::vector<size_t> turns(fibers.size());
  for (size_t i = 0; i < turns.size(); ++i) turns[i] = order == 1 ? turns.size() - 1 - i : i;
  random_order.seed(order);
  size_t left = fibers.size();
  int idle_rounds = 0;
  while (left > 0 && idle_rounds < 1000) {
    progress = false;
    if (order > 1) std::shuffle(turns.begin(), turns.end(), random_order);
    for (const size_t turn : turns) {
      Fiber& fiber = fibers[turn];
      if (fiber.done || (fiber.waits_for != nullptr && fiber.waits_for->generation == fiber.waits_beyond)) continue;
      current = &fiber;
      swapcontext(&scheduler, &fiber.context);
      if (fiber.done) --left, progress = true;
    }
    idle_rounds = progress ? 0 : idle_rounds + 1;
  }
  _mm_setcsr(before);
  return left > 0;
}

inline unsigned char* shared_memory() {
  const uintptr_t address = (uintptr_t)current->block->shared.data();
  return (unsigned char*)((address + 15) & ~(uintptr_t)15);
}

}  // namespace emulator

#define threadIdx (emulator::current->thread_index)
#define blockIdx (emulator::current->block_index)

// ---- what ptx.cuh has on a GPU ----

template <int COUNT>
void barrier_sync(int barrier) {
  emulator::meet_at_barrier(barrier, COUNT);
}
inline void barrier_sync(int barrier, int count) { emulator::meet_at_barrier(barrier, count); }
inline void store_relaxed(unsigned long long* address, unsigned long long word) {
  *address = word;
  emulator::progress = true;
}
inline unsigned long long load_relaxed(const unsigned long long* address) {
  emulator::yield();  // somebody else must write it
  return *(const volatile unsigned long long*)address;
}
// A copy is made when it is waited for; until then there are no numbers where it goes.
template <int BYTES>
void copy_async(void* shared, const void* global) {
  std::memset(shared, 0xff, BYTES);
  emulator::current->copies.push_back({shared, global, BYTES});
}
inline void await_copies() {
  for (const auto& copy : emulator::current->copies) std::memcpy(copy.to, copy.from, copy.bytes);
  emulator::current->copies.clear();
}
inline void others_may_run() {
  if (emulator::order > 1 && emulator::random_order() % 16 == 0) {
    emulator::progress = true;
    emulator::yield();
  }
}

// ---- CUDA's own functions ----

inline void __syncthreads() { emulator::meet_at_barrier(0, emulator::current->block->threads); }
inline void __syncwarp() { emulator::exchange(0); }
inline unsigned __ballot_sync(unsigned, bool here) {
  const uint64_t* words = emulator::exchange((int)here);
  unsigned mask = 0;
  for (int lane = 0; lane < emulator::LANES; ++lane) mask |= (words[lane] != 0 ? 1u : 0u) << lane;
  return mask;
}
inline bool __any_sync(unsigned mask, bool here) { return __ballot_sync(mask, here) != 0; }
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulator::lane_word<T>(emulator::exchange(value), lane % emulator::LANES);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int bits) {
  return emulator::lane_word<T>(emulator::exchange(value), (threadIdx.x % emulator::LANES) ^ bits);
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  const uint64_t* words = emulator::exchange(value);
  return (unsigned)*std::min_element(words, words + emulator::LANES);
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const uint64_t* words = emulator::exchange(value);
  return (unsigned)*std::max_element(words, words + emulator::LANES);
}
inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __ffs(unsigned word) { return __builtin_ffs((int)word); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
inline unsigned __float_as_uint(float value) {
  unsigned word;
  std::memcpy(&word, &value, 4);
  return word;
}
inline float __uint_as_float(unsigned word) {
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T, typename U>
T atomicAdd(T* address, U value) {
  const T before = *address;
  *address += (T)value;
  return before;
}
template <typename T, typename U>
T atomicSub(T* address, U value) {
  const T before = *address;
  *address -= (T)value;
  return before;
}
inline unsigned atomicOr(unsigned* address, unsigned value) { return std::exchange(*address, *address | value); }
inline unsigned atomicAnd(unsigned* address, unsigned value) { return std::exchange(*address, *address & value); }
inline unsigned atomicMin(unsigned* address, unsigned value) { return std::exchange(*address, std::min(*address, value)); }
inline unsigned atomicMax(unsigned* address, unsigned value) { return std::exchange(*address, std::max(*address, value)); }
template <typename A, typename B>
std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
