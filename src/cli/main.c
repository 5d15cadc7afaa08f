/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tacit/tacit.h"

int main(void) {
    printf("tacit %s\n", tacit_version());
    return 0;
}
