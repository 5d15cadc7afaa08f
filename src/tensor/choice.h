/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of tensors by class and by name:
 *
 *   all                      every tensor
 *   mlp,embedding,head       these classes
 *   all,-norm,-position      all but these
 *   attention,/h\.0\./       a class, and what a POSIX extended regular expression finds in the name
 *
 * A list of words, separated by commas, that are applied in their order; a word after a minus takes tensors out. A
 * list that begins with a minus begins with all.
 *
 * The class of a tensor follows from its name alone, as GPT-2, LLaMA, BERT and torch.nn name their modules: attention,
 * mlp, embedding (of tokens), position (embedding of positions), norm, head (the output; a tied one is the embedding),
 * and other.
 */
#ifndef TACITI_TENSOR_CHOICE_H
#define TACITI_TENSOR_CHOICE_H

#include "tensor/layout.h"

/* Returns the name of the class of the tensor called `name`. */
const char *taciti_tensor_class_of(const char *name);

/* Sets chosen[tensor_count]. Returns E_CONFIG for a word that is no class, a regular expression that is none, and one
 * that finds no tensor of this layout; a class may have none. origin: of the list, with which messages begin. Not
 * collective. */
tacit_status taciti_tensors_choose(const taciti_layout *layout, const char *origin, const char *list, bool *chosen);

#endif
