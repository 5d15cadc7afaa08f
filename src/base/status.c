/* SPDX-License-Identifier: Apache-2.0 */
#include "tacit/tacit.h"

#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)

const char *tacit_status_name(tacit_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                                        \
    case TACIT_##name: return #name;
        TACIT_STATUS_LIST(CASE)
#undef CASE
    }
    return "UNKNOWN";
}

const char *tacit_status_text(tacit_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                                        \
    case TACIT_##name: return text;
        TACIT_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

int tacit_status_exit_code(tacit_status status) {
    switch (status) {
    case TACIT_OK:
    case TACIT_PENDING: return 0;
    case TACIT_E_USAGE: return 2;
    case TACIT_E_CONFIG:
    case TACIT_E_UNSUPPORTED: return 3;
    case TACIT_E_DATA: return 4;
    case TACIT_E_PEER: return 5;
    case TACIT_E_NUMERICS: return 6;
    case TACIT_E_MEMORY:
    case TACIT_E_IO: return 7;
    case TACIT_E_INTERNAL: return 1;
    }
    return 1;
}

const char *tacit_version(void) {
    return TEXT_OF(TACIT_VERSION_MAJOR) "." TEXT_OF(TACIT_VERSION_MINOR) "." TEXT_OF(TACIT_VERSION_PATCH);
}
