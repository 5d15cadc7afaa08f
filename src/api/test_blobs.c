/* SPDX-License-Identifier: Apache-2.0
 *
 * Blobs of any size, for which the caller makes room while a checkpoint is loaded, in structs of any size; and
 * checkpoints of step 0, whose parameters go on under any strategy.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/test_folder.h"
#include "tacit/tacit.h"

typedef struct scene {
    tacit_settings *settings;
    tacit_comm *comm;
    tacit_layout *layout;
    tacit_job *job;
    test_path folder;
} scene;

static tacit_layout *create_layout(void) {
    tacit_layout *layout = NULL;
    assert_int_equal(tacit_layout_create(&layout), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "out", 1, (const size_t[]){3}, 0), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "in", 2, (const size_t[]){5, 4}, TACIT_DECAY), TACIT_OK);
    return layout;
}

static void open_job(scene *s) {
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &s->job), TACIT_OK);
}

static int open_scene(void **state) {
    scene *s = calloc(1, sizeof *s);
    *state = s;
    assert_int_equal(tacit_settings_create(&s->settings), TACIT_OK);
    assert_int_equal(tacit_open_self(NULL, &s->comm), TACIT_OK);
    s->layout = create_layout();
    s->folder = folder_create();
    open_job(s);
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    assert_int_equal(tacit_job_close(s->job), TACIT_OK);
    assert_int_equal(tacit_close(s->comm), TACIT_OK);
    tacit_layout_destroy(s->layout);
    tacit_settings_destroy(s->settings);
    folder_remove(&s->folder);
    free(s);
    return 0;
}

static void refused(tacit_status got, tacit_status want, const char *text) {
    assert_int_equal(got, want);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
}

static void reopen_job(scene *s, const char *setting) {
    assert_int_equal(tacit_job_close(s->job), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, setting), TACIT_OK);
    open_job(s);
}

/* Saves the blobs and opens a job that can load them. */
static void save(scene *s, const tacit_blob *blobs, size_t count) {
    assert_int_equal(tacit_job_start(s->job), TACIT_OK);
    assert_int_equal(tacit_job_save(s->job, s->folder.text, 1, blobs, count), TACIT_OK);
    assert_int_equal(tacit_job_close(s->job), TACIT_OK);
    open_job(s);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

typedef struct space {
    char *memory; /* owned */
    size_t asked, calls;
    bool none;
} space;

static void *make_room(void *context, size_t count) {
    space *s = context;
    s->asked = count;
    s->calls++;
    if (!s->none) s->memory = malloc(count + 1);
    return s->memory;
}

static tacit_blob blob_of(const char *name, void *bytes, size_t count) {
    return (tacit_blob){.size = sizeof(tacit_blob), .name = name, .bytes = bytes, .count = count};
}

static tacit_blob blob_with(const char *name, space *room) {
    return (tacit_blob){.size = sizeof(tacit_blob), .name = name, .room = make_room, .context = room};
}

static void a_caller_makes_room(void **state) {
    scene *s = *state;
    static char large[3 << 20], small[] = "abc", none[1];
    space rooms[3] = {{.asked = 77}, {.asked = 77}, {.asked = 77}};
    bool found = false;
    for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 7 + i / 1000);
    const tacit_blob saved[] = {blob_of("large", large, sizeof large), blob_of("small", small, 3),
                                blob_of("none", none, 0)};
    save(s, saved, 3);
    tacit_blob blobs[] = {blob_with("small", &rooms[0]), blob_with("large", &rooms[1]), blob_with("none", &rooms[2]),
                          blob_with("other", NULL)};
    assert_int_equal(tacit_job_load(s->job, s->folder.text, blobs, 4, &found), TACIT_OK);
    assert_true(found && blobs[0].loaded && blobs[1].loaded && blobs[2].loaded && !blobs[3].loaded);
    assert_null(blobs[3].bytes);
    assert_int_equal(blobs[0].count, 3);
    assert_int_equal(blobs[1].count, sizeof large);
    assert_int_equal(blobs[2].count, 0);
    for (size_t i = 0; i < 3; i++) assert_true(blobs[i].bytes == rooms[i].memory && rooms[i].calls == 1);
    assert_memory_equal(rooms[0].memory, small, 3);
    assert_memory_equal(rooms[1].memory, large, sizeof large);
    for (size_t i = 0; i < 3; i++) free(rooms[i].memory);
}

/* Which holds none. */
static void a_checkpoint_is_no_folder_of_them(void **state) {
    scene *s = *state;
    char word[] = "word", path[TACITI_PATH_BYTES];
    bool found = false;
    const tacit_blob saved[] = {blob_of("a", word, 4)};
    save(s, saved, 1);
    (void)snprintf(path, sizeof path, "%s/step_%08d", s->folder.text, 0);
    refused(tacit_job_load(s->job, path, NULL, 0, &found), TACIT_E_USAGE, "is a checkpoint; name the folder");
}

/* A load that fails sets nothing, whatever room was made. */
static void no_room_is_an_error(void **state) {
    scene *s = *state;
    char word[] = "word", text[5] = "----";
    space rooms[2] = {{.asked = 0}, {.none = true}};
    bool found = false;
    const tacit_blob saved[] = {blob_of("a", word, 4), blob_of("b", word, 4), blob_of("c", word, 4)};
    save(s, saved, 3);
    tacit_blob blobs[] = {blob_of("c", text, 4), blob_with("a", &rooms[0]), blob_with("b", &rooms[1])};
    refused(tacit_job_load(s->job, s->folder.text, blobs, 3, &found), TACIT_E_MEMORY,
            "no room for the 4 bytes of blob b");
    assert_false(found || blobs[0].loaded || blobs[1].loaded || blobs[2].loaded);
    assert_true(blobs[1].bytes == NULL && blobs[1].count == 0 && rooms[0].calls == 1);
    assert_string_equal(text, "----");
    blobs[2].room = NULL;
    refused(tacit_job_load(s->job, s->folder.text, blobs, 3, &found), TACIT_E_USAGE, "no function room()");
    assert_int_equal(tacit_job_start(s->job), TACIT_OK); /* the job is as it was */
    refused(tacit_job_save(s->job, s->folder.text, 1, &blobs[1], 1), TACIT_E_USAGE, "its bytes are at NULL");
    free(rooms[0].memory);
}

static void count_lost(void *context, tacit_log_level level, const char *line) {
    (void)level;
    *(size_t *)context += strstr(line, "blob b is each rank's own") != NULL;
}

/* Replicas begin from a mean under another strategy; a blob that ranks share is theirs there too. */
static void a_shared_blob_outlives_its_strategy(void **state) {
    scene *s = *state;
    static const char *const FORMER[] = {"strategy=gossip", "strategy=localsgd", "strategy=shard", "strategy=dp"};
    size_t lines = 0;
    assert_int_equal(tacit_log_to(count_lost, &lines, TACIT_LOG_WARN), TACIT_OK);
    for (size_t i = 0; i < sizeof FORMER / sizeof *FORMER; i++) {
        char word[] = "word", text[5] = "----", mine[5] = "----";
        tacit_blob saved[] = {blob_of("a", word, 4), blob_of("b", word, 4)};
        tacit_blob loaded[] = {blob_of("a", text, 4), blob_of("b", mine, 4)};
        bool found = false;
        saved[1].own = loaded[1].own = true;
        reopen_job(s, FORMER[i]);
        assert_int_equal(tacit_job_start(s->job), TACIT_OK);
        assert_int_equal(tacit_job_save(s->job, s->folder.text, 1, saved, 2), TACIT_OK);
        reopen_job(s, FORMER[(i + 1) % 4]);
        assert_int_equal(tacit_job_load(s->job, s->folder.text, loaded, 2, &found), TACIT_OK);
        assert_true(found && loaded[0].loaded && !loaded[1].loaded);
        assert_string_equal(text, word);
        assert_string_equal(mine, "----"); /* what belongs to a replica does not go on with the mean */
        assert_int_equal(lines, i + 1);
    }
    assert_int_equal(tacit_log_to(NULL, NULL, TACIT_LOG_WARN), TACIT_OK);
}

/* shard with compress.gather updates other arrays than those that it computes with. */
static void parameters_of_step_0_go_on(void **state) {
    scene *s = *state;
    static const char *const FORMER[] = {"strategy=dp", "strategy=shard"};
    static const char *const STAGES[] = {"shard.stage=1", "shard.stage=2", "shard.stage=3"};
    for (size_t i = 0; i < 6; i++) {
        bool found = false;
        tacit_part part = {.size = sizeof part};
        reopen_job(s, "compress.gather=none");
        reopen_job(s, FORMER[i % 2]);
        for (size_t k = 0; k < tacit_layout_floats(s->layout); k++) tacit_job_parameters(s->job)[k] = 1;
        assert_int_equal(tacit_job_start(s->job), TACIT_OK);
        assert_int_equal(tacit_job_save(s->job, s->folder.text, 1, NULL, 0), TACIT_OK);
        assert_int_equal(tacit_settings_set(s->settings, "strategy=shard"), TACIT_OK);
        assert_int_equal(tacit_settings_set(s->settings, STAGES[i / 2]), TACIT_OK);
        reopen_job(s, "compress.gather=int8");
        assert_int_equal(tacit_job_load(s->job, s->folder.text, NULL, 0, &found), TACIT_OK);
        assert_true(found && tacit_job_part(s->job, 0, &part) && part.floats > 0);
        assert_float_equal(part.parameters[0], 1, 0);
        assert_float_equal(tacit_job_parameters(s->job)[0], 1, 0);
    }
}

/* ---- sizes of structs -------------------------------------------------------------------------------------------- */

/* A program of a former version, whose blobs end before `room`, and of a later one, whose blobs have more. */
typedef struct former {
    size_t size;
    const char *name;
    void *bytes;
    size_t count;
    bool own, loaded;
} former;

typedef struct later {
    tacit_blob blob;
    void *more;
} later;

static void programs_of_other_versions(void **state) {
    scene *s = *state;
    char a[] = "aaa", b[] = "bbb";
    bool found = false;
    former old[] = {{.size = offsetof(tacit_blob, room), .name = "a", .bytes = a, .count = 3},
                    {.size = offsetof(tacit_blob, room), .name = "b", .bytes = b, .count = 3}};
    later new[] = {{{.size = sizeof(later), .name = "b", .bytes = a, .count = 3}, NULL},
                   {{.size = sizeof(later), .name = "a", .bytes = b, .count = 3}, NULL}};
    _Static_assert(sizeof(former) == offsetof(tacit_blob, room), "the first members of a blob");
    save(s, (const tacit_blob *)(const void *)old, 2);
    memset(a, '-', 3), memset(b, '-', 3);
    assert_int_equal(tacit_job_load(s->job, s->folder.text, &new[0].blob, 2, &found), TACIT_OK);
    assert_true(new[0].blob.loaded &&new[1].blob.loaded);
    assert_string_equal(a, "bbb");
    assert_string_equal(b, "aaa");
    assert_int_equal(tacit_job_close(s->job), TACIT_OK);
    open_job(s);
    assert_int_equal(tacit_job_load(s->job, s->folder.text, (tacit_blob *)(void *)old, 2, &found), TACIT_OK);
    assert_true(old[0].loaded && old[1].loaded && old[1].size == sizeof(former));
    assert_string_equal(a, "aaa");
    new[1].more = a;
    refused(tacit_job_save(s->job, s->folder.text, 1, &new[0].blob, 2), TACIT_E_UNSUPPORTED, "built for a newer one");
    old[1].size--;
    refused(tacit_job_save(s->job, s->folder.text, 1, (tacit_blob *)(void *)old, 2), TACIT_E_USAGE, "blob 1 size");
    old[0].size = 0;
    refused(tacit_job_save(s->job, s->folder.text, 1, (tacit_blob *)(void *)old, 2), TACIT_E_USAGE,
            "tacit_blob: its size is 0; begin with tacit_blob x = {.size = sizeof x}");
}

static void counters_have_a_size(void **state) {
    const scene *s = *state;
    tacit_counters counters = {.steps = 7};
    refused(tacit_job_counters(s->job, &counters), TACIT_E_USAGE, "tacit_counters: its size is 0");
    memset(&counters, 0, sizeof counters);
    counters.size = offsetof(tacit_counters, skipped);
    counters.steps = counters.skipped = -1;
    assert_int_equal(tacit_job_counters(s->job, &counters), TACIT_OK);
    assert_int_equal(counters.steps, 0);
    assert_int_equal(counters.skipped, -1); /* behind what this program knows */
    assert_int_equal(counters.size, offsetof(tacit_counters, skipped));
    counters.size = (size_t)1 << 40;
    refused(tacit_job_counters(s->job, &counters), TACIT_E_USAGE, "tacit_counters: its size is 1099511627776");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_caller_makes_room),        TEST(a_checkpoint_is_no_folder_of_them),
        TEST(no_room_is_an_error),        TEST(a_shared_blob_outlives_its_strategy),
        TEST(parameters_of_step_0_go_on), TEST(programs_of_other_versions),
        TEST(counters_have_a_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
