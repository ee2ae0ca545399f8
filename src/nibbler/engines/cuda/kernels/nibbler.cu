// The kernel of Nibbler: roles to warps. See nibbler_layout.cuh for threads, memory and the order of a step.

constexpr int SHARED_BYTES = round_up(sizeof(Shared), 16);

// What the host must agree with: bytes of shared memory without the pools of rows, and of one row in all of a block's
// pools, of what else may lie there; bytes of the table of arrays, of a run's scalars; threads of a block.
extern "C" __global__ void sizes(int* out) {
  out[0] = SHARED_BYTES, out[1] = QUESTIONS_PER_BLOCK * (int)ROW_BYTES;
  out[2] = DISCOVERY_APART ? (int)sizeof(DiscoveryShared) : 0;
  out[3] = (int)sizeof(State), out[4] = (int)sizeof(Scalars), out[5] = THREADS;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    nibbler_steps(const State* state_pointer, const Environment* environments, Scalars* all_scalars, u64* mail,
                  double* bins, u32 first_run, u32 num_bins, u32 bin_size, u32 pool_rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const State state = *state_pointer;
  const int run = first_run + blockIdx.x / BLOCKS, part = blockIdx.x % BLOCKS;
  const Scalars scalars = all_scalars[run];
  const Environment env = environments[scalars.environment];
  load_decay(shared.decay, state.decay + (size_t)run * (DECAY_LOW + DECAY_HIGH), threadIdx.x, THREADS);
  __syncthreads();
  char* const beyond = reinterpret_cast<char*>(memory + SHARED_BYTES);  // the pools of rows
  const int warp = threadIdx.x / 32;
  if (warp < ALL_QUESTION_WARPS) {
    question_warps(shared, beyond, pool_rows, state, scalars, run, part, num_bins * bin_size);
  } else if (warp < ALL_QUESTION_WARPS + MAIN_WARPS) {
    main_warps(shared, state, env, scalars, run, part, all_scalars + run, mail, bins, num_bins, bin_size);
  } else {
    discovery_warps(shared, beyond, state, env, scalars, run, part, num_bins * bin_size);
  }
}
