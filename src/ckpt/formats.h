/* SPDX-License-Identifier: Apache-2.0
 *
 * The two foreign formats behind weights.h, one file each, and what both need (formats.c). Not collective.
 */
#ifndef TACITI_CKPT_FORMATS_H
#define TACITI_CKPT_FORMATS_H

#include "base/file.h"
#include "ckpt/weights.h"

enum { TACITI_LLMC_MAGIC = 20240326 };

/* Hugging Face: `config` is the path of config.json, `folder` holds it and the weights. */
tacit_status taciti_hf_describe(const char *config, taciti_model_options *out);
tacit_status taciti_hf_read(const char *folder, const taciti_model_options *options, const taciti_layout *layout,
                            float *flat);
tacit_status taciti_hf_write(const char *folder, const taciti_weights_write_options *how,
                             const taciti_model_options *options, const taciti_layout *layout, const float *flat);

/* llm.c. */
tacit_status taciti_llmc_describe(const char *path, taciti_model_options *out);
tacit_status taciti_llmc_read(const char *path, const taciti_model_options *options, const taciti_layout *layout,
                              float *flat);
tacit_status taciti_llmc_write(const char *path, const taciti_weights_write_options *how,
                               const taciti_model_options *options, const taciti_layout *layout, const float *flat);

/* Shape of `name` in the layout, or E_INTERNAL. */
tacit_status taciti_formats_tensor(const taciti_layout *layout, const char *name, const taciti_tensor **out);

/* taciti_model_resolve() for what a file says: E_DATA that names the file. */
tacit_status taciti_formats_resolve(const char *path, taciti_model_options *options);

/* Refuses a path where something is: nothing is overwritten. */
tacit_status taciti_formats_refuse_existing(const char *path);

/* Returns E_DATA and says how to convert a pickle. */
tacit_status taciti_formats_refuse_pickle(const char *path);

/* path + ".tmp", where a file is written before it is renamed to `path`. */
tacit_status taciti_formats_temporary(const char *path, char out[TACITI_PATH_BYTES]);
tacit_status taciti_formats_publish(const char *temporary, const char *path);

#endif
