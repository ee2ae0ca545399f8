// One meeting per step of the blocks of a run: every block posts its partial sums, every block reads all.
//
// A posted word is 64 bits: the value and the step it belongs to. So a word carries its own flag, needs no
// fence, and a reader just waits until all words carry the step. Two letter boxes alternate: a block
// posts step t + 2 only after it has read everybody's t + 1, and that was posted after reading t.
// All blocks of a run must be resident at once, or this would wait for ever: the host launches no more blocks than
// the device holds.

__device__ __forceinline__ void post(u64* address, u32 value, u32 tag) {
  store_relaxed(address, ((u64)tag << 32) | value);
}

// In shared memory a letter's words are this far from those of the next: with `lanes` lanes for each letter, a warp reads
// all letters at once from different banks.
__host__ __device__ constexpr int letter_stride(int lanes) {
  return lanes + round_up(BLOCKS > lanes ? BLOCKS - lanes : 0, 32);
}

// Await the words of all blocks. `box` has LETTERS rows of BLOCKS words; called by COUNT threads (whole warps), which
// leave with letters[] filled in shared memory and synchronised. Every thread has its loads in flight at once.
template <int LETTERS, int COUNT, int STRIDE>
__device__ __forceinline__ void await_letters(const u64* box, u32 tag, u32* letters, int rank, int barrier) {
  constexpr int WORDS = LETTERS * BLOCKS, PER_THREAD = (WORDS + COUNT - 1) / COUNT;
  u64 words[PER_THREAD];
  bool waiting;
  do {
    waiting = false;
#pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
      const int at = rank + k * COUNT;
      if (at < WORDS) words[k] = load_relaxed(box + at);
    }
#pragma unroll
    for (int k = 0; k < PER_THREAD; ++k)
      if (rank + k * COUNT < WORDS) waiting |= (u32)(words[k] >> 32) != tag;
  } while (waiting);
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k)
    if (rank + k * COUNT < WORDS)
      letters[(rank + k * COUNT) / BLOCKS * STRIDE + (rank + k * COUNT) % BLOCKS] = (u32)words[k];
  group_sync<COUNT>(barrier);
}

// The sum over blocks of letter number `letter`, by the LANES lanes of a warp that share it; every such lane gets it. The
// order depends on nothing but BLOCKS.
template <int LANES>
__device__ __forceinline__ float letter_sum(const u32* letters, int letter, int lane) {
  float sum = 0.0f;
#pragma unroll
  for (int first = 0; first < BLOCKS; first += LANES) {
    const int block = first + lane % LANES;
    if (block < BLOCKS) sum += __uint_as_float(letters[letter * letter_stride(LANES) + block]);
  }
#pragma unroll
  for (int bit = LANES / 2; bit >= 1; bit /= 2) sum += __shfl_xor_sync(EVERY_LANE, sum, bit);
  return sum;
}
