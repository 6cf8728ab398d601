/* SPDX-License-Identifier: Apache-2.0 */
/* throughput_rows.h - published steps: rows of test_throughput.c's table */
/* Layers, hidden, heads, vocabulary. */
#define MPT_125M 12, 768, 12, 50368
#define MPT_760M 24, 1536, 12, 50368
#define MPT_1B 24, 2048, 16, 50368
#define MPT_3B 32, 2560, 20, 50368
#define MPT_7B 32, 4096, 32, 50368
#define MPT_13B 40, 5120, 40, 50368
#define MPT_30B 48, 7168, 56, 50368
#define MPT_70B 80, 8192, 64, 50368
#define LLAMA_8B 32, 4096, 32, 128256
#define LLAMA_70B 80, 8192, 64, 128256
#define LLAMA_405B 126, 16384, 128, 128256
#define NEMOTRON_15B 32, 6144, 48, 256000
#define NEMOTRON_340B 96, 18432, 96, 256000
#define NONE .recompute = MERAK_RECOMPUTE_NONE
#define GPT_175B 96, 12288, 96, 51200
#define GPT_1T 128, 25600, 160, 51200

/* clang-format off */
/* llm-foundry: tokens a second of MPTs, all on nodes of 8 GPUs with replicas
 * alone (tp 1, pp 1). */
{"MPT 7 B on 8", "a100", MPT_7B, 2048, 96, 1, ALONE(6),
 TOKENS, 37130, FITTED, 0, 0, 0, DGX},
{"MPT 3 B on 8, 4096 tokens", "a100", MPT_3B, 4096, 240, 1, ALONE(5),
 TOKENS, 75658, FITTED, 0, 0, 0, DGX},
{"MPT 125 M on 8", "a100", MPT_125M, 2048, 640, 1, ALONE(40),
 TOKENS, 1142641, HELD_OUT, 0, 0, 0, DGX},
{"MPT 760 M on 8", "a100", MPT_760M, 2048, 384, 1, ALONE(24),
 TOKENS, 259472, HELD_OUT, 0, 0, 0, DGX},
{"MPT 1 B on 8", "a100", MPT_1B, 2048, 448, 1, ALONE(14),
 TOKENS, 164109, HELD_OUT, 0, 0, 0, DGX},
{"MPT 3 B on 8, 1024 tokens", "a100", MPT_3B, 1024, 960, 1, ALONE(20),
 TOKENS, 92643, HELD_OUT, 0, 0, 0, DGX},
{"MPT 13 B on 8", "a100", MPT_13B, 2048, 48, 1, ALONE(2),
 TOKENS, 18097, HELD_OUT, 0, 0, 0, DGX},
{"MPT 7 B on 8, 8192 tokens", "a100", MPT_7B, 8192, 128, 1, AGAIN(8),
 TOKENS, 25655, HELD_OUT, 0, 0, 0, DGX},
{"MPT 30 B on 8", "a100", MPT_30B, 2048, 504, 1, AGAIN(3),
 TOKENS, 7330, HELD_OUT, 0, 0, 0, DGX},
{"MPT 70 B on 32", "a100", MPT_70B, 2048, 1024, 4,
 {.tp = 1, .pp = 1, .micro_batch = 2, FULL, FETCHED},
 TOKENS, 11962, HELD_OUT, 0, 0, 0, DGX},
{"MPT 70 B on 64", "a100", MPT_70B, 2048, 2048, 8,
 {.tp = 1, .pp = 1, .micro_batch = 8, FULL, FETCHED},
 TOKENS, 26274, HELD_OUT, 0, 0, 0, DGX},
{"MPT 7 B on 8", "h100-2023", MPT_7B, 2048, 48, 1, ALONE(6),
 TOKENS, 85144, FITTED, 0, 0, 0, DGX},
{"MPT 3 B on 8, 4096 tokens", "h100-2023", MPT_3B, 4096, 240, 1, ALONE(5),
 TOKENS, 167712, FITTED, 0, 0, 0, DGX},
{"MPT 760 M on 8", "h100-2023", MPT_760M, 2048, 384, 1, ALONE(24),
 TOKENS, 505177, HELD_OUT, 0, 0, 0, DGX},
{"MPT 1 B on 8", "h100-2023", MPT_1B, 2048, 112, 1, ALONE(14),
 TOKENS, 363645, HELD_OUT, 0, 0, 0, DGX},
{"MPT 3 B on 8, 1024 tokens", "h100-2023", MPT_3B, 1024, 960, 1, ALONE(20),
 TOKENS, 216369, HELD_OUT, 0, 0, 0, DGX},
{"MPT 3 B on 64", "h100-2023", MPT_3B, 2048, 1152, 8, ALONE(6),
 TOKENS, 1441663, HELD_OUT, 0, 0, 0, DGX},
{"MPT 13 B on 8", "h100-2023", MPT_13B, 2048, 16, 1, ALONE(2),
 TOKENS, 38336, HELD_OUT, 0, 0, 0, DGX},
{"MPT 7 B on 8, 8192 tokens", "h100-2023", MPT_7B, 8192, 128, 1, AGAIN(8),
 TOKENS, 55481, HELD_OUT, 0, 0, 0, DGX},
{"MPT 30 B on 8", "h100-2023", MPT_30B, 2048, 504, 1, AGAIN(3),
 TOKENS, 16022, HELD_OUT, 0, 0, 0, DGX},
{"MPT 3 B on 16", "h100-2023", MPT_3B, 2048, 480, 2, ALONE(10),
 TOKENS, 386285, HELD_OUT, 0, 0, 0, DGX},
{"MPT 1 B on 64", "h100-2023", MPT_1B, 2048, 1280, 8, ALONE(20),
 TOKENS, 2841754, HELD_OUT, 0, 0, 0, DGX},
/* llm.c: seconds a step, in the scripts of these runs */
{"llm.c, 124 M on 8", "a100", 12, 768, 12, 50304, 1024, 512, 1, ALONE(64),
 SECONDS, 0.3, 0.79, 0, 0, 0, DGX},
{"llm.c, 350 M on 8", "a100", 24, 1024, 16, 50304, 1024, 512, 1, ALONE(64),
 SECONDS, 0.82, HELD_OUT, 0, 0, 0, DGX},
{"llm.c, 774 M on 8", "a100", 36, 1280, 20, 50304, 1024, 512, 1, ALONE(32),
 SECONDS, 1.7, HELD_OUT, 0, 0, 0, DGX},
{"llm.c, 1558 M on 8", "h100-2023", 48, 1600, 25, 50304, 1024, 1024, 1, ALONE(16),
 SECONDS, 2.8, 0.78, 0, 0, 0, DGX},
/* torchtitan: tokens a second, here of all GPUs */
{"Llama 8 B on 8", "h100-2023", LLAMA_8B, 8192, 16, 1,
 {.tp = 1, .pp = 1, .micro_batch = 2, SELECTIVE},
 TOKENS, 8 * 6667., HELD_OUT, 8, 14336, 0, DGX},
{"Llama 8 B on 128", "h100-2023", LLAMA_8B, 8192, 256, 16,
 {.tp = 1, .pp = 1, .micro_batch = 2, SELECTIVE},
 TOKENS, 128 * 6514., HELD_OUT, 8, 14336, 0, DGX},
{"Llama 8 B on 8, fetched", "h100-2023", LLAMA_8B, 8192, 16, 1,
 {.tp = 1, .pp = 1, .micro_batch = 2, SELECTIVE, FETCHED},
 TOKENS, 8 * 6667., HELD_OUT, 8, 14336, 0, DGX},
{"Llama 8 B on 128, fetched", "h100-2023", LLAMA_8B, 8192, 256, 16,
 {.tp = 1, .pp = 1, .micro_batch = 2, SELECTIVE, FETCHED},
 TOKENS, 128 * 6514., HELD_OUT, 8, 14336, 0, DGX},
/* Paxml, in the benchmarks below, 2024: seconds a step; parameters are shared
 * out there and held whole here */
{"Paxml, GPT 5 B on 16", "h100-2023", 24, 4096, 32, 51200, 2048, 64, 2, ALONE(4),
 SECONDS, 0.634, HELD_OUT, 0, 0, 0, DGX},
{"Paxml, GPT 5 B on 128", "h100-2023", 24, 4096, 32, 51200, 2048, 512, 16,
 ALONE(4), SECONDS, 0.651, HELD_OUT, 0, 0, 0, DGX},
/* NVIDIA's dgxc-benchmarking, 2025: seconds a step.  Where sequences are cut
 * over two GPUs, there are twice as many replicas here.  Nemotron's feed-forward
 * is not gated: here it is, with as many parameters and FLOPs. */
{"Llama 8 B on 8", "h100", LLAMA_8B, 8192, 128, 1,
 {.tp = 1, .pp = 1, .micro_batch = 1, NONE},
 SECONDS, 12.27, FITTED, 8, 14336, 0, DGX},
{"Llama 70 B on 64", "h100", LLAMA_70B, 8192, 128, 8,
 {.tp = 4, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 5, NONE, SP},
 SECONDS, 14.66, FITTED, 8, 28672, 0, DGX},
{"Llama 8 B on 128", "h100", LLAMA_8B, 8192, 2048, 16,
 {.tp = 1, .pp = 1, .micro_batch = 1, NONE},
 SECONDS, 12.33, HELD_OUT, 8, 14336, 0, DGX},
{"Llama 70 B on 1024", "h100", LLAMA_70B, 8192, 2048, 128,
 {.tp = 4, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 5, NONE, SP},
 SECONDS, 14.65, HELD_OUT, 8, 28672, 0, DGX},
{"Llama 405 B on 512", "h100", LLAMA_405B, 8192, 256, 64,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 8, NONE, SP},
 SECONDS, 19.78, HELD_OUT, 8, 53248, 0, DGX},
{"GPT-3 175 B on 128", "h100", GPT_175B, 2048, 256, 16,
 {.tp = 4, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 8.309, HELD_OUT, 0, 0, 0, DGX},
{"GPT-3 175 B on 1024", "h100", GPT_175B, 2048, 2048, 128,
 {.tp = 4, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 8.453, HELD_OUT, 0, 0, 0, DGX},
{"Nemotron 15 B on 16", "h100", NEMOTRON_15B, 4096, 64, 2,
 {.tp = 4, .pp = 1, .micro_batch = 4, NONE, SP},
 SECONDS, 2.83, HELD_OUT, 8, 16384, 0, DGX},
{"Nemotron 15 B on 256", "h100", NEMOTRON_15B, 4096, 1024, 32,
 {.tp = 4, .pp = 1, .micro_batch = 4, NONE, SP},
 SECONDS, 2.88, HELD_OUT, 8, 16384, 0, DGX},
{"Nemotron 340 B on 128", "h100", NEMOTRON_340B, 4096, 32, 16,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 4.61, HELD_OUT, 8, 49152, 0, DGX},
{"Nemotron 340 B on 1024", "h100", NEMOTRON_340B, 4096, 256, 128,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 4.73, HELD_OUT, 8, 49152, 0, DGX},
/* the same, April 2025, with fewer tensor ranks; and Nemotron of 340 B on more
 * GPUs */
{"Nemotron 15 B on 16, tp 2", "h100", NEMOTRON_15B, 4096, 64, 2,
 {.tp = 2, .pp = 1, .micro_batch = 2, NONE, SP},
 SECONDS, 2.66, HELD_OUT, 8, 16384, 0, DGX},
{"Nemotron 15 B on 64, tp 2", "h100", NEMOTRON_15B, 4096, 256, 8,
 {.tp = 2, .pp = 1, .micro_batch = 2, NONE, SP},
 SECONDS, 2.67, HELD_OUT, 8, 16384, 0, DGX},
{"Nemotron 15 B on 256, tp 2", "h100", NEMOTRON_15B, 4096, 1024, 32,
 {.tp = 2, .pp = 1, .micro_batch = 2, NONE, SP},
 SECONDS, 2.68, HELD_OUT, 8, 16384, 0, DGX},
{"Nemotron 15 B on 1024, tp 2", "h100", NEMOTRON_15B, 4096, 4096, 128,
 {.tp = 2, .pp = 1, .micro_batch = 2, NONE, SP},
 SECONDS, 2.74, HELD_OUT, 8, 16384, 0, DGX},
{"Nemotron 340 B on 256", "h100", NEMOTRON_340B, 4096, 64, 32,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 4.36, HELD_OUT, 8, 49152, 0, DGX},
{"Nemotron 340 B on 512", "h100", NEMOTRON_340B, 4096, 128, 64,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 4.39, HELD_OUT, 8, 49152, 0, DGX},
{"Nemotron 340 B on 2048", "h100", NEMOTRON_340B, 4096, 512, 256,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 4.43, HELD_OUT, 8, 49152, 0, DGX},
/* the same of GB200, May 2025; Grok-1 is a Mixtral of 314 B, each of whose
 * experts is cut over tp, there as here, and gets no more rows than with even
 * routing (MegatronTokenDropCallback of NeMo's recipe) */
{"Llama 405 B on 128", "gb200", LLAMA_405B, 8192, 64, 32,
 {.tp = 4, .cp = 2, .given[MERAK_CHOICE_CP] = true, .pp = 8, .micro_batch = 1,
  INTERLEAVED, .chunks = 8, NONE, SP},
 SECONDS, 9.347, FITTED, 8, 53248, 0, NVL64},
{"Llama 405 B on 256", "gb200", LLAMA_405B, 8192, 128, 64,
 {.tp = 4, .cp = 2, .given[MERAK_CHOICE_CP] = true, .pp = 8, .micro_batch = 1,
  INTERLEAVED, .chunks = 8, NONE, SP},
 SECONDS, 9.484, HELD_OUT, 8, 53248, 0, NVL64},
{"Llama 405 B on 512", "gb200", LLAMA_405B, 8192, 256, 128,
 {.tp = 4, .cp = 2, .given[MERAK_CHOICE_CP] = true, .pp = 8, .micro_batch = 1,
  INTERLEAVED, .chunks = 8, NONE, SP},
 SECONDS, 9.508, HELD_OUT, 8, 53248, 0, NVL64},
{"Nemotron 340 B on 128", "gb200", NEMOTRON_340B, 4096, 32, 32,
 {.tp = 8, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 2.189, HELD_OUT, 8, 49152, 0, NVL64},
{"Nemotron 340 B on 256", "gb200", NEMOTRON_340B, 4096, 64, 64,
 {.tp = 8, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 2.19, HELD_OUT, 8, 49152, 0, NVL64},
{"Nemotron 340 B on 512", "gb200", NEMOTRON_340B, 4096, 128, 128,
 {.tp = 8, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 2.229, HELD_OUT, 8, 49152, 0, NVL64},
{"Nemotron 340 B on 128, batch 512", "gb200", NEMOTRON_340B, 4096, 512, 32,
 {.tp = 8, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 32.66, FITTED, 8, 49152, 0, NVL64},
{"Nemotron 340 B on 256, batch 512", "gb200", NEMOTRON_340B, 4096, 512, 64,
 {.tp = 8, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 16.58, HELD_OUT, 8, 49152, 0, NVL64},
{"Nemotron 340 B on 512, batch 512", "gb200", NEMOTRON_340B, 4096, 512, 128,
 {.tp = 8, .pp = 4, .micro_batch = 1, INTERLEAVED, .chunks = 12, NONE, SP},
 SECONDS, 8.468, HELD_OUT, 8, 49152, 0, NVL64},
{"Grok-1 on 128", "gb200", 64, 6144, 48, 131072, 8192, 256, 32,
 {.tp = 4, .ep = 8, .pp = 1, .micro_batch = 8, NONE, SP, EXCHANGED},
 SECONDS, 7.325, HELD_OUT, 8, 32768, 8, NVL64},
/* Llama 3 (arXiv 2407.21783), table 4: 430 TFLOP/s a GPU, of 2.54e12 FLOPs a
 * token (6 a parameter, and attention's to earlier tokens) */
{"Llama 405 B on 8192", "h100", LLAMA_405B, 8192, 2048, 1024,
 {.tp = 8, .pp = 16, .micro_batch = 1, INTERLEAVED, .chunks = 8, NONE, SP},
 TOKENS, 8192 * 430 / 2.54, HELD_OUT, 8, 53248, 0, DGX},
/* IBM's fms-fsdp, 2024: tokens a second, here of all GPUs; the first two share
 * parameters out within a node */
{"fms-fsdp, 7 B on 128", "a100", 32, 4096, 32, 32000, 4096, 256, 16,
 {.tp = 1, .pp = 1, .micro_batch = 2, HYBRID},
 TOKENS, 128 * 3760., HELD_OUT, 32, 11008, 0, DGX},
{"fms-fsdp, 13 B on 128", "a100", 40, 5120, 40, 32000, 4096, 128, 16,
 {.tp = 1, .pp = 1, .micro_batch = 1, HYBRID},
 TOKENS, 128 * 1700., HELD_OUT, 40, 13824, 0, DGX},
{"fms-fsdp, 34 B on 128", "a100", 48, 8192, 64, 32000, 4096, 1024, 16,
 {.tp = 1, .pp = 1, .micro_batch = 8, FULL, FETCHED},
 TOKENS, 128 * 772., HELD_OUT, 8, 22016, 0, DGX},
{"fms-fsdp, 70 B on 128", "a100", 80, 8192, 64, 32000, 4096, 768, 16,
 {.tp = 1, .pp = 1, .micro_batch = 6, FULL, FETCHED},
 TOKENS, 128 * 380., HELD_OUT, 8, 28672, 0, DGX},
/* Korthikanti et al.: seconds a step, with all recomputed and as they propose */
{"Megatron, 22 B on 8", "a100", 48, 6144, 64, 51200, 2048, 4, 1,
 {.tp = 8, .pp = 1, .micro_batch = 4, SELECTIVE, SP},
 SECONDS, 1.10, HELD_OUT, 0, 0, 0, DGX},
{"Megatron, 22 B on 8, recomputed", "a100", 48, 6144, 64, 51200, 2048, 4, 1,
 {.tp = 8, .pp = 1, .micro_batch = 4, FULL, NO_SP},
 SECONDS, 1.42, HELD_OUT, 0, 0, 0, DGX},
{"Megatron, 175 B on 64", "a100", GPT_175B, 2048, 64, 8,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 3, SELECTIVE, SP},
 SECONDS, 13.75, HELD_OUT, 0, 0, 0, DGX},
{"Megatron, 175 B on 64, recomputed", "a100", GPT_175B, 2048, 64, 8,
 {.tp = 8, .pp = 8, .micro_batch = 1, INTERLEAVED, .chunks = 3, FULL, NO_SP},
 SECONDS, 18.13, HELD_OUT, 0, 0, 0, DGX},
{"Megatron, 1 T on 512", "a100", GPT_1T, 2048, 512, 64,
 {.tp = 8, .pp = 64, .micro_batch = 1, .schedule = "1f1b", SELECTIVE, SP},
 SECONDS, 71.49, HELD_OUT, 0, 0, 0, DGX},
{"Megatron, 1 T on 512, recomputed", "a100", GPT_1T, 2048, 512, 64,
 {.tp = 8, .pp = 64, .micro_batch = 1, .schedule = "1f1b", FULL, NO_SP},
 SECONDS, 94.42, HELD_OUT, 0, 0, 0, DGX},
/* Megatron-LM's README of v0.9 and Megatron-MoE-ModelZoo, runtime.conf and
 * run_mixtral_8x22B.sh, all with even routing: from 468 and 455 TFLOP/s of a
 * GPU, all pairs of positions counted.  Experts of the larger one are there on
 * 8 ranks, each whole, and here on 4, each cut over tp; rows travel to them. */
{"Mixtral 8x7B on 64", "h100", 32, 4096, 32, 32000, 4096, 256, 8,
 {.tp = 1, .ep = 8, .pp = 4, .micro_batch = 8, INTERLEAVED, .chunks = 8, NONE,
  EXCHANGED},
 SECONDS, 2.903, HELD_OUT, 8, 14336, 8, DGX},
{"Mixtral 8x22B on 128", "h100", 56, 6144, 48, 32768, 4096, 256, 16,
 {.tp = 2, .ep = 4, .pp = 8, .micro_batch = 4, .schedule = "1f1b", NONE, SP,
  EXCHANGED},
 SECONDS, 4.513, HELD_OUT, 8, 16384, 8, DGX},
/* Narayanan et al.: FLOP/s of a GPU, those of recomputation among them */
{"PTD-P, 1.7 B on 32", "a100-2021", 24, 2304, 24, 51200, 2048, 512, 4,
 {.tp = 1, .pp = 1, .micro_batch = 16, PTD_P},
 FLOPS, 1.37e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 3.6 B on 64", "a100-2021", 30, 3072, 32, 51200, 2048, 512, 8,
 {.tp = 2, .pp = 1, .micro_batch = 16, PTD_P},
 FLOPS, 1.38e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 7.5 B on 128", "a100-2021", 36, 4096, 32, 51200, 2048, 512, 16,
 {.tp = 4, .pp = 1, .micro_batch = 16, PTD_P},
 FLOPS, 1.42e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 18 B on 256", "a100-2021", 40, 6144, 48, 51200, 2048, 1024, 32,
 {.tp = 8, .pp = 1, .micro_batch = 8, PTD_P},
 FLOPS, 1.35e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 39 B on 512", "a100-2021", 48, 8192, 64, 51200, 2048, 1536, 64,
 {.tp = 8, .pp = 2, .micro_batch = 4, .schedule = "1f1b", PTD_P},
 FLOPS, 1.38e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 76 B on 1024", "a100-2021", 60, 10240, 80, 51200, 2048, 1792, 128,
 {.tp = 8, .pp = 4, .micro_batch = 2, INTERLEAVED, .chunks = 3, PTD_P},
 FLOPS, 1.40e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 145 B on 1536", "a100-2021", 80, 12288, 96, 51200, 2048, 2304, 192,
 {.tp = 8, .pp = 8, .micro_batch = 2, INTERLEAVED, .chunks = 2, PTD_P},
 FLOPS, 1.48e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 310 B on 1920", "a100-2021", 96, 16384, 128, 51200, 2048, 2160, 240,
 {.tp = 8, .pp = 16, .micro_batch = 1, INTERLEAVED, .chunks = 2, PTD_P},
 FLOPS, 1.55e14, HELD_OUT, 0, 0, 0, DGX},
{"PTD-P, 1 T on 3072", "a100-2021", GPT_1T, 2048, 3072, 384,
 {.tp = 8, .pp = 64, .micro_batch = 1, .schedule = "1f1b", PTD_P},
 FLOPS, 1.63e14, HELD_OUT, 0, 0, 0, DGX},
/* Where BLOOM was trained: four Omni-Path adapters of 100 Gb/s for the 8 GPUs
 * of a node (its model card), at 88 % of that, as other adapters.  The head has
 * 250880 words; since 28 February 2022 it and the table counted as layers.
 * Trials in bf16 added up gradients in f32 beside those in bf16, earlier ones
 * in fp16 had gradients in fp16 alone: here in as many bytes of bf16. */
#define JEAN_ZAY(as, gb, each)                                      \
    &(const struct setting)                                         \
    {                                                               \
        .node_bytes_per_s = 4.4e10, .memory_gb = (gb), .cut = (as), \
        .grads_beside = (each)                                      \
    }
#define IN_BF16 2
#define IN_FP16 0
#define HALF_GRADS \
    .grad_dtype = MERAK_BF16, .given[MERAK_CHOICE_GRAD_DTYPE] = true
/* BLOOM, trials before its run (bigscience, tr11, chronicles-prequel.md, 2022):
 * seconds a step */
{"BLOOM, 176 B on 384", "a100-2021", 70, 14336, 112, 250880, 2048, 2048, 48,
 {.tp = 4, .pp = 12, .micro_batch = 2, .schedule = "1f1b", FULL, NO_SP},
 SECONDS, 104.5, HELD_OUT, 0, 0, 0, JEAN_ZAY(CUT_TABLES, 59, IN_BF16)},
{"BLOOM, 176 B on 384, 64 heads", "a100-2021", 70, 14336, 64, 250880, 2048, 2048, 48,
 {.tp = 4, .pp = 12, .micro_batch = 4, .schedule = "1f1b", FULL, NO_SP},
 SECONDS, 102.27, HELD_OUT, 0, 0, 0, JEAN_ZAY(CUT_TABLES, 73, IN_BF16)},
{"BLOOM, 176 B on 384, tp 8", "a100-2021", 70, 14336, 64, 250880, 2048, 2048, 48,
 {.tp = 8, .pp = 12, .micro_batch = 2, .schedule = "1f1b", FULL, NO_SP},
 SECONDS, 121.63, HELD_OUT, 0, 0, 0, JEAN_ZAY(CUT_TABLES, 40, IN_BF16)},
{"BLOOM, 181 B on 384, tp 8", "a100-2021", 72, 14336, 64, 250880, 2048, 2048, 48,
 {.tp = 8, .pp = 6, .micro_batch = 4, .schedule = "1f1b", FULL, NO_SP, HALF_GRADS},
 SECONDS, 120.85, HELD_OUT, 0, 0, 0, JEAN_ZAY(CUT_LAYERS, 55, IN_FP16)},
{"BLOOM, 187 B on 320, tp 8", "a100-2021", 80, 13824, 64, 250880, 2048, 2048, 40,
 {.tp = 8, .pp = 10, .micro_batch = 4, .schedule = "1f1b", FULL, NO_SP, HALF_GRADS},
 SECONDS, 147.43, HELD_OUT, 0, 0, 0, JEAN_ZAY(CUT_LAYERS, 53, IN_FP16)},
{"BLOOM, 182 B on 384, tp 8", "a100-2021", 84, 13312, 64, 250880, 2048, 2048, 48,
 {.tp = 8, .pp = 12, .micro_batch = 4, .schedule = "1f1b", FULL, NO_SP, HALF_GRADS},
 SECONDS, 125.52, HELD_OUT, 0, 0, 0, JEAN_ZAY(CUT_LAYERS, 0, IN_FP16)},
