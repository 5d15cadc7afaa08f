/* SPDX-License-Identifier: Apache-2.0
 *
 * The stages of sidco.c: shares of the elements before, whose product is the share that is sought.
 */
#ifndef TACITI_CODEC_REFERENCE_SIDCO_H
#define TACITI_CODEC_REFERENCE_SIDCO_H

#include <stddef.h>

enum { TACITI_SIDCO_STAGES = 64 };

/* Writes the shares of `stages` stages, the first of `first`, the others equal. stages 0: as many as it takes if each
 * but the last has `ratio`. Returns their number; 1 if one stage reaches the share. */
size_t taciti_sidco_shares(double share, double first, double ratio, size_t stages, double out[TACITI_SIDCO_STAGES]);

/* The stages of the next steps, after some in which on average `achieved` times k elements were sent. */
size_t taciti_sidco_adapted(size_t stages, double achieved, double share);

#endif
