/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/boot/boot_impl.h - shared by the pmix and single boots */
#ifndef MERAK_RUNTIME_BOOT_INTERNAL_H
#define MERAK_RUNTIME_BOOT_INTERNAL_H

#include "runtime/boot/boot.h"

enum merak_status merak_boot_single_open(struct merak_boot **boot_p,
                                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_boot_pmix_open(struct merak_boot **boot_p,
                                       struct merak_error *err) MERAK_CHECKED;

/*
 * Fill host, node_of, hosts, n_nodes, local_rank and local_size from the
 * host name of every rank (host[boot->size], copied).  rank and size are set.
 */
enum merak_status merak_boot_set_nodes(struct merak_boot *boot,
                                       const char *const *host,
                                       struct merak_error *err) MERAK_CHECKED;
/* Free what merak_boot_set_nodes() filled in. */
void merak_boot_clear_nodes(struct merak_boot *boot);

#endif
