/* SPDX-License-Identifier: Apache-2.0 */
/* chat_formats.c - the usual chat formats
 *
 * From the publishers' documentation: Meta's prompt formats of Llama 2, 3 and
 * 3.1, OpenAI's ChatML as used by Qwen and SmolLM 2, Mistral AI's [INST],
 * Google's Gemma, Microsoft's Phi-3, and Zephyr.
 */
#include "config.h"

#include "text/tokenizer/chat_formats.h"

#define LLAMA3(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
/* The date is the template's default. */
#define LLAMA31_SYSTEM                                       \
    LLAMA3("system")                                         \
    "Cutting Knowledge Date: December 2023\nToday Date: 26 " \
    "Jul 2024\n\n"
#define CHATML(role) "<|im_start|>" role "\n"

const struct merak_chat_format merak_chat_formats[] = {
    {.name = "llama3.1",
     .begin = BOS,
     .turn = {{LLAMA31_SYSTEM, "<|eot_id|>"},
              {LLAMA3("user"), "<|eot_id|>"},
              {LLAMA3("assistant"), ""}},
     .answer_end = "<|eot_id|>",
     .no_system = LLAMA31_SYSTEM "<|eot_id|>",
     .trims = true,
     .bos = "<|begin_of_text|>"},
    {.name = "llama3",
     .begin = BOS,
     .turn = {{LLAMA3("system"), "<|eot_id|>"},
              {LLAMA3("user"), "<|eot_id|>"},
              {LLAMA3("assistant"), ""}},
     .answer_end = "<|eot_id|>",
     .trims = true,
     .bos = "<|begin_of_text|>"},
    {.name = "qwen3",
     .turn = {{CHATML("system"), "<|im_end|>\n"},
              {CHATML("user"), "<|im_end|>\n"},
              {CHATML("assistant"), "\n"}},
     .answer_end = "<|im_end|>",
     .last_answer = "<think>\n\n</think>\n\n"},
    {.name = "chatml",
     .turn = {{CHATML("system"), "<|im_end|>\n"},
              {CHATML("user"), "<|im_end|>\n"},
              {CHATML("assistant"), "\n"}},
     .answer_end = "<|im_end|>"},
    {.name = "gemma",
     .begin = BOS,
     .turn = {{"", ""},
              {"<start_of_turn>user\n", "<end_of_turn>\n"},
              {"<start_of_turn>model\n", "\n"}},
     .answer_end = "<end_of_turn>",
     .system_in = {"", "\n\n"},
     .system = MERAK_CHAT_SYSTEM_REFUSED,
     .trims = true,
     .alternates = true,
     .bos = "<bos>"},
    {.name = "phi3",
     .end = EOS,
     .turn = {{"<|system|>\n", "<|end|>\n"},
              {"<|user|>\n", "<|end|>\n"},
              {"<|assistant|>\n", "\n"}},
     .answer_end = "<|end|>",
     .bos = "<s>",
     .eos = "<|endoftext|>"},
    {.name = "zephyr",
     .turn = {{"<|system|>\n", EOS "\n"},
              {"<|user|>\n", EOS "\n"},
              {"<|assistant|>\n", "\n"}},
     .answer_end = EOS,
     .bos = "<s>",
     .eos = "</s>"},
    {.name = "llama2",
     .turn = {{"", ""}, {BOS "[INST] ", " [/INST]"}, {" ", ""}},
     .answer_end = " " EOS,
     .system_in = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .system = MERAK_CHAT_SYSTEM_FIRST_USER,
     .trims = true,
     .alternates = true,
     .bos = "<s>",
     .eos = "</s>"},
    {.name = "mistral",
     .begin = BOS,
     .turn = {{"", ""}, {"[INST] ", " [/INST]"}, {"", ""}},
     .answer_end = EOS,
     .system_in = {"", "\n\n"},
     .system = MERAK_CHAT_SYSTEM_REFUSED,
     .alternates = true,
     .bos = "<s>",
     .eos = "</s>"},
    {.name = NULL},
};
