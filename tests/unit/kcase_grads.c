/* SPDX-License-Identifier: Apache-2.0 */
/* kcase_grads.c - which kernels are the gradients of which, of what operands */
#include "config.h"

#include "unit/near.h"

#include "unit/kcase.h"

const struct kc_grad kc_grads[] = {
    {"embedding_dw", "embedding", 2, 1, {0, KC_DY, KC_D(1)}, true},
    {"add_position_dw", "add_position", 1, 1, {KC_DY, KC_D(1)}, true},
    {"linear_dx", "linear", 2, 1, {KC_DY, 1, KC_D(0)}, false},
    {"linear_dw", "linear", 2, 1, {0, KC_DY, KC_D(1)}, true},
    {"linear_db", "linear", 1, 1, {KC_DY, KC_D(2)}, true},
    {"layernorm_dx", "layernorm", 5, 1, {KC_DY, 0, 1, 4, 5, KC_D(0)}, false},
    {"layernorm_dw",
     "layernorm",
     4,
     2,
     {KC_DY, 0, 4, 5, KC_D(1), KC_D(2)},
     true},
    {"rmsnorm_dx", "rmsnorm", 4, 1, {KC_DY, 0, 1, 3, KC_D(0)}, false},
    {"rmsnorm_dw", "rmsnorm", 3, 1, {KC_DY, 0, 3, KC_D(1)}, true},
    {"rope", "rope", 1, 1, {KC_DY, KC_D(0)}, false},
    {"attention_dx",
     "attention",
     6,
     3,
     {KC_DY, 0, 1, 2, 3, 4, KC_D(0), KC_D(1), KC_D(2)},
     false},
    {"attention_packed_dx",
     "attention_packed",
     4,
     1,
     {KC_DY, 0, 1, 2, KC_D(0)},
     false},
    {"attention_dx",
     "attention",
     7,
     3,
     {KC_DY, 0, 1, 2, 4, 5, 3, KC_D(0), KC_D(1), KC_D(2)},
     false},
    {"attention_packed_dx",
     "attention_packed",
     5,
     1,
     {KC_DY, 0, 2, 3, 1, KC_D(0)},
     false},
    {"add_position_dw", "add_position", 2, 1, {KC_DY, 2, KC_D(1)}, true},
    {"gelu_dx", "gelu", 2, 1, {KC_DY, 0, KC_D(0)}, false},
    {"relu2_dx", "relu2", 2, 1, {KC_DY, 0, KC_D(0)}, false},
    {"swiglu_dx", "swiglu", 3, 2, {KC_DY, 0, 1, KC_D(0), KC_D(1)}, false},
    {"softcap_dx", "softcap", 2, 1, {KC_DY, 1, KC_D(0)}, false},
    {"scale", "scale", 1, 1, {KC_DY, KC_D(0)}, false},
    {"dropout", "dropout", 1, 1, {KC_DY, KC_D(0)}, false},
};
const int kc_n_grads = sizeof(kc_grads) / sizeof(*kc_grads);
