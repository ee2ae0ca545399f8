// The instructions that CUDA C++ has no words for, each as a function. Included first.
// tests/engines/cuda/emulator.h has the same functions for a processor without a GPU, and defines EMULATED.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef EMULATED

// Named barriers: COUNT threads (whole warps) of the block meet.
template <int COUNT>
__device__ __forceinline__ void barrier_sync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(COUNT) : "memory");
}

__device__ __forceinline__ void barrier_sync(int barrier, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Words that blocks exchange through global memory.
__device__ __forceinline__ void store_relaxed(u64* address, u64 word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
}

__device__ __forceinline__ u64 load_relaxed(const u64* address) {
  u64 word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
  return word;
}

// Copies from global to shared memory that are not waited for until await_copies.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  const u32 to = (u32)__cvta_generic_to_shared(shared);
  if constexpr (BYTES == 16) {  // past L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES) : "memory");
  }
}

__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A place where the emulator lets other threads run, as they do at any time here.
__device__ __forceinline__ void others_may_run() {}

#endif
