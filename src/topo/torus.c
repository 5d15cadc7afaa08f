/* SPDX-License-Identifier: Apache-2.0
 *
 * A torus of rows x columns: one fifth from each of the four neighbours. Where a side is shorter than three, neighbours
 * coincide; then each of the d distinct ones gives 1 / (d + 1). One row or column is the static ring.
 */
#include "base/log.h"
#include "topo/family.h"

/* The distinct neighbours of a position other than itself; their number. */
static int neighbours(int rows, int columns, int position, int out[4]) {
    const int row = position / columns, column = position % columns;
    const int all[4] = {row * columns + (column + 1) % columns, row * columns + (column + columns - 1) % columns,
                        (row + 1) % rows * columns + column, (row + rows - 1) % rows * columns + column};
    int count = 0;
    for (int i = 0; i < 4; i++) {
        bool fresh = all[i] != position;
        for (int k = 0; k < count; k++) fresh = fresh && out[k] != all[i];
        if (fresh) out[count++] = all[i];
    }
    return count;
}

tacit_status taciti_family_torus(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks;
    int columns = 1; /* the largest divisor up to the square root: as square as it gets */
    for (int c = 1; c * c <= n; c++)
        if (n % c == 0) columns = c;
    if (request->degree > 0) columns = request->degree;
    if (n % columns != 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "torus: %d columns do not divide %d ranks; give a degree that does, or 0 to have one chosen",
                           columns, n);
    for (int i = 0; i < n; i++) {
        int from[4];
        const int count = neighbours(n / columns, columns, i, from);
        for (int k = 0; k < count; k++) taciti_draft_edge(draft, i, from[k], 1.0 / (count + 1));
    }
    taciti_draft_close(draft);
    return TACIT_OK;
}
