/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"
#include "ckpt/stage.h"
#include "ckpt/test_folder.h"
#include "ckpt/test_state.h"

static test_path g_folder;
static test_state g_state;

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    state_create(&g_state);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    state_destroy(&g_state);
    folder_remove(&g_folder);
    return 0;
}

static void save(int64_t step, int keep) {
    state_fill(&g_state, step);
    assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, step, keep, &g_state.state), TACIT_OK);
}

/* The newest checkpoint must be `step`, with the values of `step`. */
static void expect_newest(int64_t step) {
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t found = -1;
    assert_int_equal(taciti_ckpt_find(NULL, g_folder.text, path, sizeof path, &found, &meta), TACIT_OK);
    assert_int_equal(found, step);
    state_expect_meta(meta, step);
    taciti_free(meta);
    state_fill(&g_state, -1);
    assert_int_equal(taciti_ckpt_load(path, g_state.arrays, 2), TACIT_OK);
    state_expect(&g_state, step);
}

static void what_is_saved_is_loaded(void **state) {
    (void)state;
    save(100, 2);
    expect_newest(100);
    save(0, 2);
    expect_newest(100);
    save(INT64_C(1234567890123), 2);
    expect_newest(INT64_C(1234567890123));
}

static void an_empty_folder_is_not_an_error_line(void **state) {
    (void)state;
    char path[64], *meta = NULL;
    int64_t step = 5;
    const test_path none = path_in(g_folder.text, "none");
    assert_int_equal(taciti_ckpt_find(NULL, none.text, path, sizeof path, &step, &meta), TACIT_E_DATA);
    assert_int_equal(step, -1);
    step = 5;
    assert_int_equal(taciti_ckpt_find(NULL, g_folder.text, path, sizeof path, &step, &meta), TACIT_E_DATA);
    assert_int_equal(step, -1);
}

static void a_path_that_does_not_fit_is_refused(void **state) {
    (void)state;
    char path[8], *meta = NULL;
    int64_t step = 0;
    save(3, 1);
    assert_int_equal(taciti_ckpt_find(NULL, g_folder.text, path, sizeof path, &step, &meta), TACIT_E_IO);
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

static void shares_are_complete_and_even(void **state) {
    (void)state;
    size_t sizes[50], total = 0;
    int owner[50];
    for (size_t count = 0; count <= 50; count++) {
        if (count > 0) total += sizes[count - 1] = (count * 7919) % 1000 + (count % 9 == 0 ? 5000u : 0u);
        for (int writers = 1; writers <= 8; writers++) {
            size_t loads[8] = {0}, max = 0, largest = 0;
            assert_int_equal(taciti_stage_assign(sizes, count, writers, owner), TACIT_OK);
            for (size_t i = 0; i < count; i++) {
                assert_in_range(owner[i], 0, writers - 1);
                loads[owner[i]] += sizes[i];
                if (sizes[i] > largest) largest = sizes[i];
            }
            for (int w = 0; w < writers; w++) max = loads[w] > max ? loads[w] : max;
            assert_true(max <= total / (size_t)writers + largest); /* Graham's bound for list scheduling */
        }
    }
}

/* Whatever number of ranks wrote it, one reader gets the same. */
static void any_number_of_writers_gives_the_same(void **state) {
    (void)state;
    for (int writers = 1; writers <= 8; writers++) {
        taciti_stage_share shares[8];
        state_fill(&g_state, writers);
        assert_int_equal(taciti_stage_begin(g_folder.text, tmp_of(g_folder.text, writers)), TACIT_OK);
        for (int w = writers - 1; w >= 0; w--)
            assert_int_equal(
                taciti_stage_write(tmp_of(g_folder.text, writers), writers, &g_state.state, w, writers, &shares[w]),
                TACIT_OK);
        assert_int_equal(taciti_stage_commit(g_folder.text, tmp_of(g_folder.text, writers), writers,
                                             g_state.state.meta_json, shares, writers),
                         TACIT_OK);
        expect_newest(writers);
    }
}

/* Array 0 is every rank's, array 1 this rank's own; values of rank r are those of step 10 + r. */
static void write_as_rank(int64_t step, int rank, int ranks, taciti_stage_share *share) {
    char prefix[TACITI_CKPT_PREFIX_BYTES];
    taciti_ckpt_array arrays[2] = {g_state.arrays[0], g_state.arrays[1]};
    taciti_ckpt_own_prefix(rank, "model.", prefix);
    arrays[1].prefix = prefix;
    arrays[1].own = true;
    /* In either order: a rank's own arrays do not disturb how the others are shared out. */
    const taciti_ckpt_array first = arrays[rank % 2], second = arrays[1 - rank % 2];
    arrays[0] = first;
    arrays[1] = second;
    state_fill(&g_state, 10 + rank);
    for (size_t i = 0; i < g_state.layout.n; i++) g_state.flat[0][i] = (float)i;
    const taciti_ckpt_state state = {.arrays = arrays, .array_count = 2, .meta_json = "{}"};
    assert_int_equal(taciti_stage_write(tmp_of(g_folder.text, step), step, &state, rank, ranks, share), TACIT_OK);
}

static void load_as_rank(const char *path, int rank) {
    char prefix[TACITI_CKPT_PREFIX_BYTES];
    taciti_ckpt_array arrays[2] = {g_state.arrays[0], g_state.arrays[1]};
    taciti_ckpt_own_prefix(rank, "model.", prefix);
    arrays[1].prefix = prefix;
    state_fill(&g_state, -1);
    assert_int_equal(taciti_ckpt_load(path, arrays, 2), TACIT_OK);
    state_expect_array(&g_state, 1, 10 + rank);
    for (size_t t = 0; t < g_state.layout.tensor_count; t++)
        for (size_t i = 0; i < g_state.layout.tensors[t].n; i++)
            assert_true(g_state.flat[0][g_state.layout.tensors[t].offset + i] ==
                        (float)(g_state.layout.tensors[t].offset + i));
}

static void every_rank_gets_its_own_back(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++) {
        taciti_stage_share shares[8];
        test_path folder;
        char *meta = NULL, name[32];
        int64_t step = 0;
        assert_int_equal(taciti_stage_begin(g_folder.text, tmp_of(g_folder.text, ranks)), TACIT_OK);
        for (int r = 0; r < ranks; r++) write_as_rank(ranks, r, ranks, &shares[r]);
        assert_int_equal(taciti_stage_commit(g_folder.text, tmp_of(g_folder.text, ranks), ranks, "{}", shares, ranks),
                         TACIT_OK);
        (void)snprintf(name, sizeof name, "step_%08d", ranks);
        folder = path_in(g_folder.text, name);
        assert_int_equal(taciti_ckpt_check(folder.text, &step, &meta), TACIT_OK);
        taciti_free(meta);
        for (int r = 0; r < ranks; r++) load_as_rank(folder.text, r);
        const taciti_ckpt_array nobody = {.prefix = "rank.00008.model.",
                                          .entry = {.layout = &g_state.layout, .data = g_state.flat[1]}};
        assert_int_equal(taciti_ckpt_load(folder.text, &nobody, 1), TACIT_E_DATA);
    }
}

static void a_share_that_is_not_there_stops_the_commit(void **state) {
    (void)state;
    taciti_stage_share shares[2];
    save(1, 2);
    assert_int_equal(taciti_stage_begin(g_folder.text, tmp_of(g_folder.text, 2)), TACIT_OK);
    for (int w = 0; w < 2; w++)
        assert_int_equal(taciti_stage_write(tmp_of(g_folder.text, 2), 2, &g_state.state, w, 2, &shares[w]), TACIT_OK);
    const test_path tmp = path_in(g_folder.text, "step_00000002.tmp"), lost = path_in(tmp.text, shares[1].name);
    assert_int_equal(unlink(lost.text), 0);
    assert_int_equal(taciti_stage_commit(g_folder.text, tmp_of(g_folder.text, 2), 2, "{}", shares, 2), TACIT_E_IO);
    assert_int_equal(taciti_file_remove(tmp.text), TACIT_OK);
    assert_false(file_exists(tmp.text));
    expect_newest(1);
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

static void expect_steps(const int64_t *steps, size_t count) {
    int64_t *found = NULL;
    size_t found_count = 0;
    assert_int_equal(taciti_stage_list(g_folder.text, &found, &found_count), TACIT_OK);
    assert_int_equal(found_count, count);
    assert_memory_equal(found, steps, count * sizeof *steps);
    taciti_free(found);
}

static void the_newest_are_kept(void **state) {
    (void)state;
    for (int64_t step = 10; step <= 50; step += 10) save(step, 2);
    expect_steps((int64_t[]){50, 40}, 2);
    save(60, 1);
    expect_steps((int64_t[]){60}, 1);
    save(70, 3);
    save(80, 3);
    expect_steps((int64_t[]){80, 70, 60}, 3);
}

static void cut_last_byte(int64_t step) {
    char folder[TACITI_PATH_BYTES];
    struct stat info;
    assert_int_equal(taciti_stage_path(g_folder.text, step, "", folder), TACIT_OK);
    const test_path shard = path_in(folder, "rank-00000.safetensors");
    assert_int_equal(stat(shard.text, &info), 0);
    assert_int_equal(truncate(shard.text, info.st_size - 1), 0);
}

/* A damaged checkpoint does not take the place of a good one, and one of the same step is replaced. */
static void damaged_ones_do_not_count(void **state) {
    (void)state;
    save(10, 2);
    save(20, 2);
    cut_last_byte(20);
    expect_newest(10);
    save(15, 2); /* resumed from 10; 20 lies ahead */
    expect_steps((int64_t[]){20, 15, 10}, 3);
    expect_newest(15);
    save(20, 2);
    expect_newest(20);
    expect_steps((int64_t[]){20, 15}, 2);
    cut_last_byte(20);
    save(25, 2);
    expect_steps((int64_t[]){25, 20, 15}, 3);
    expect_newest(25);
}

/* Checkpoint 20 has its size, but another byte: it neither counts for `keep` nor comes back as the newest. */
static void what_a_run_could_not_load_is_set_aside(void **state) {
    (void)state;
    save(10, 2);
    save(20, 2);
    const test_path shard = path_in(path_in(g_folder.text, "step_00000020").text, "rank-00000.safetensors");
    FILE *file = fopen(shard.text, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    const int last = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fputc(last ^ 1, file), last ^ 1);
    assert_int_equal(fclose(file), 0);
    expect_newest(10);
    taciti_stage_set_aside(g_folder.text, 10);
    expect_steps((int64_t[]){10}, 1);
    assert_true(file_exists(path_in(g_folder.text, "step_00000020.damaged").text));
    save(25, 2);
    expect_steps((int64_t[]){25, 10}, 2);
}

static void expect_refused(tacit_status want, int64_t newest, const char *text) {
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t found = -1;
    assert_int_equal(taciti_ckpt_find(NULL, g_folder.text, path, sizeof path, &found, &meta), want);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
    assert_int_equal(found, newest);
    assert_null(meta);
}

/* A newer version may have fields of its own. */
static void a_newer_format_is_not_damage(void **state) {
    (void)state;
    char rest[256], text[512], digest[TACITI_DIGEST_BYTES];
    save(10, 2);
    save(20, 2);
    const test_path manifest = path_in(path_in(g_folder.text, "step_00000020").text, "manifest.json");
    (void)snprintf(rest, sizeof rest, "\"format\": %d, \"news\": 1}\n", TACITI_MANIFEST_FORMAT + 1);
    taciti_digest_block(rest, strlen(rest), digest);
    (void)snprintf(text, sizeof text, "{\"digest\": \"%s\",\n%s", digest, rest);
    file_put(manifest.text, text, strlen(text));
    expect_refused(TACIT_E_UNSUPPORTED, 20, "step_00000020/manifest.json: format 2 is not known to tacit");
}

/* In a process of a user who is not root. */
static void find_unreadable(void) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    if (access(g_folder.text, R_OK | X_OK) != 0) _exit(3); /* TMPDIR is root's alone */
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t found = -1;
    const tacit_status status = taciti_ckpt_find(NULL, g_folder.text, path, sizeof path, &found, &meta);
    _exit(status == TACIT_E_IO && strstr(tacit_error_text(), "step_00000020/manifest.json: cannot be read") ? 0 : 1);
}

static void what_may_not_be_read_is_not_damage(void **state) {
    (void)state;
    int status = 0;
    save(10, 2);
    save(20, 2);
    const test_path newest = path_in(g_folder.text, "step_00000020"), manifest = path_in(newest.text, "manifest.json");
    assert_int_equal(chmod(g_folder.text, 0755), 0);
    for (int whole = 0; whole < 2; whole++) {
        assert_int_equal(chmod(whole ? newest.text : manifest.text, 0), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) find_unreadable();
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 3) skip();
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(chmod(whole ? newest.text : manifest.text, 0755), 0);
    }
    expect_newest(20);
}

static void leftovers_of_a_killed_save_are_removed(void **state) {
    (void)state;
    const test_path stale = path_in(g_folder.text, "step_00000007.tmp"), below = path_in(stale.text, "x");
    const test_path other = path_in(g_folder.text, "notes.tmp");
    assert_int_equal(taciti_file_make_folder(stale.text), TACIT_OK);
    file_put(below.text, "x", 1);
    file_put(other.text, "x", 1);
    save(8, 2);
    assert_false(file_exists(stale.text));
    assert_true(file_exists(other.text));
    expect_newest(8);
}

/* A link in the place of a checkpoint or of a temporary folder goes; what it points to is not ours. */
static void links_of_our_names_are_replaced_and_their_targets_kept(void **state) {
    (void)state;
    const test_path target = path_in(g_folder.text, "elsewhere"), inside = path_in(target.text, "x");
    static const char *const names[] = {"step_00000003", "step_00000003.tmp", "step_00000004.tmp", "step_00000002"};
    assert_int_equal(taciti_file_make_folder(target.text), TACIT_OK);
    file_put(inside.text, "x", 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(symlink(i % 2 == 0 ? target.text : "nowhere", path_in(g_folder.text, names[i]).text), 0);
    file_put(path_in(g_folder.text, "step_00000005.tmp").text, "x", 1);
    save(3, 1);
    expect_newest(3);
    expect_steps((int64_t[]){3}, 1);
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++)
        assert_false(file_exists(path_in(g_folder.text, names[i]).text));
    assert_false(file_exists(path_in(g_folder.text, "step_00000005.tmp").text));
    assert_true(file_exists(inside.text));
}

static void only_our_names_are_checkpoints(void **state) {
    (void)state;
    static const char *const names[] = {
        "step_9",         "step_0000009x", "step_00000009.tmp", "step_-0000009",
        "step_000000009", "step_",         "xstep_00000009",    "step_99999999999999999999"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(taciti_file_make_folder(path_in(g_folder.text, names[i]).text), TACIT_OK);
    expect_steps(NULL, 0);
    save(1, 1);
    expect_newest(1);
}

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

static void tensors_nobody_asks_for_are_left(void **state) {
    (void)state;
    char path[TACITI_PATH_BYTES];
    save(4, 1);
    assert_int_equal(taciti_stage_path(g_folder.text, 4, "", path), TACIT_OK);
    state_fill(&g_state, -1);
    assert_int_equal(taciti_ckpt_load(path, g_state.arrays, 1), TACIT_OK);
    state_expect_array(&g_state, 0, 4);
    state_expect_array(&g_state, 1, -1);
}

static void arrays_that_are_held_are_found(void **state) {
    (void)state;
    char path[TACITI_PATH_BYTES];
    taciti_ckpt_array arrays[4] = {g_state.arrays[0], g_state.arrays[1], g_state.arrays[1], g_state.arrays[1]};
    const bool expected[] = {true, true, false, true};
    const taciti_range range = {3, 5};
    bool held[4];
    arrays[2].prefix = "optim.v.";
    arrays[3].entry.ranges = &range;
    arrays[3].entry.range_count = 1;
    save(4, 1);
    assert_int_equal(taciti_stage_path(g_folder.text, 4, "", path), TACIT_OK);
    assert_int_equal(taciti_ckpt_find_held(path, arrays, 4, held, NULL), TACIT_OK);
    for (size_t a = 0; a < 4; a++) assert_int_equal(held[a], expected[a]);
}

static void missing_tensors_and_other_shapes_are_refused(void **state) {
    (void)state;
    char path[TACITI_PATH_BYTES];
    save(4, 1);
    assert_int_equal(taciti_stage_path(g_folder.text, 4, "", path), TACIT_OK);
    state_fill(&g_state, -1);
    taciti_ckpt_array arrays[2] = {g_state.arrays[0], g_state.arrays[1]};
    arrays[1].prefix = "optim.v.";
    assert_int_equal(taciti_ckpt_load(path, arrays, 2), TACIT_E_DATA);
    arrays[1].prefix = g_state.arrays[1].prefix;
    taciti_tensor *tensor = &g_state.layout.tensors[1];
    const taciti_tensor whole = *tensor;
    tensor->shape[0]++;
    assert_int_equal(taciti_ckpt_load(path, arrays, 2), TACIT_E_DATA);
    tensor->shape[0]--;
    tensor->dims = 1;
    assert_int_equal(taciti_ckpt_load(path, arrays, 2), TACIT_E_DATA);
    *tensor = whole;
    state_expect(&g_state, -1); /* nothing was overwritten */
    assert_int_equal(taciti_ckpt_load(path, arrays, 2), TACIT_OK);
    state_expect(&g_state, 4);
}

static void meta_must_be_an_object(void **state) {
    (void)state;
    static const char *const bad[] = {"", "[]", "7", "{", "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        taciti_ckpt_state other = g_state.state;
        other.meta_json = bad[i];
        assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, 1, 2, &other), TACIT_E_INTERNAL);
    }
    expect_steps(NULL, 0);
    assert_false(file_exists(path_in(g_folder.text, "step_00000001.tmp").text));
}

/* ---- the manifest ------------------------------------------------------------------------------------------------ */

static void manifest_keeps_what_it_was_given(void **state) {
    (void)state;
    taciti_manifest_file files[2] = {{.name = "b.safetensors", .bytes = 5, .tensors = 1},
                                     {.name = "a.safetensors", .bytes = INT64_MAX, .tensors = 2}};
    char meta[] = "{\"x\":0.1,\"big\":9223372036854775807,\"text\":\"\\u00e4 \\\" \\n\"}", *text = NULL;
    for (int i = 0; i < 2; i++) taciti_digest_block(&i, sizeof i, files[i].digest);
    const taciti_manifest in = {.step = 3, .world = 4, .tensors = 3, .files = files, .count = 2, .meta_json = meta};
    taciti_manifest out;
    size_t bytes = 0;
    assert_int_equal(taciti_manifest_format(&in, &text, &bytes), TACIT_OK);
    assert_int_equal(taciti_manifest_parse("m", text, bytes, &out), TACIT_OK);
    assert_int_equal(out.step, 3);
    assert_int_equal(out.world, 4);
    assert_int_equal(out.count, 2);
    assert_string_equal(out.files[0].name, "a.safetensors"); /* in order of names */
    assert_true(out.files[0].bytes == INT64_MAX);
    assert_string_equal(out.files[1].digest, files[0].digest);
    assert_non_null(strstr(out.meta_json, "9223372036854775807"));
    assert_non_null(strstr(out.meta_json, "\xc3\xa4 \\\" \\n"));
    taciti_manifest_destroy(&out);
    taciti_free(text);
}

static tacit_status parse_signed(const char *rest) {
    char text[2048], digest[TACITI_DIGEST_BYTES];
    taciti_manifest out;
    taciti_digest_block(rest, strlen(rest), digest);
    const int length = snprintf(text, sizeof text, "{\"digest\": \"%s\",\n%s", digest, rest);
    assert_in_range(length, 1, sizeof text - 1);
    const tacit_status status = taciti_manifest_parse("m", text, (size_t)length, &out);
    if (status == TACIT_OK) taciti_manifest_destroy(&out);
    return status;
}

#define FILE_(name, bytes, hex) "{\"name\":\"" name "\",\"bytes\":" bytes ",\"xxh3\":\"" hex "\",\"tensors\":1}"
#define HEX "0123456789abcdef0123456789abcdef"
#define REST(format, step, tensors, files, meta)                                                                       \
    "\"format\":" format ",\"step\":" step ",\"world\":1,\"tensors\":" tensors ",\"files\":[" files "],\"meta\":" meta \
    "}"

static void manifests_that_lie_are_refused(void **state) {
    (void)state;
    const char good[] = REST("1", "5", "1", FILE_("rank-0.safetensors", "8", HEX), "{}");
    static const char *const bad[] = {
        REST("0", "5", "0", "", "{}"),
        REST("1", "-5", "0", "", "{}"),
        REST("1", "5.0", "0", "", "{}"),
        REST("1", "5", "0", "", "[]"),
        REST("1", "5", "2", FILE_("rank-0.safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("rank-0.safetensors", "-8", HEX), "{}"),
        REST("1", "5", "1", FILE_("rank-0.safetensors", "8", "0123"), "{}"),
        REST("1", "5", "1", FILE_("rank-0.safetensors", "8", "0123456789ABCDEF0123456789ABCDEF"), "{}"),
        REST("1", "5", "1", FILE_("../rank-0.safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("/etc/rank-0.safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("a/b.safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("a\\\\b.safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_(".safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("..safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("a\\n.safetensors", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_("rank-0.pt", "8", HEX), "{}"),
        REST("1", "5", "1", FILE_(HEX HEX ".safetensors", "8", HEX), "{}"),
        REST("1", "5", "2", FILE_("a.safetensors", "8", HEX) "," FILE_("a.safetensors", "8", HEX), "{}"),
        REST("1", "5", "0", "7", "{}"),
        REST("1", "5", "0", "", "{\"a\":1,\"a\":1}"),
        "\"format\":1}",
        "}",
        "",
    };
    assert_int_equal(parse_signed(good), TACIT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (parse_signed(bad[i]) != TACIT_E_DATA) fail_msg("accepted: %s", bad[i]);
    assert_int_equal(parse_signed(REST("2", "5", "0", "", "{}")), TACIT_E_UNSUPPORTED);
    taciti_manifest out;
    assert_int_equal(taciti_manifest_parse("m", "", 0, &out), TACIT_E_DATA);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_saved_is_loaded),
        TEST(an_empty_folder_is_not_an_error_line),
        TEST(a_path_that_does_not_fit_is_refused),
        TEST(shares_are_complete_and_even),
        TEST(any_number_of_writers_gives_the_same),
        TEST(every_rank_gets_its_own_back),
        TEST(a_share_that_is_not_there_stops_the_commit),
        TEST(the_newest_are_kept),
        TEST(damaged_ones_do_not_count),
        TEST(what_a_run_could_not_load_is_set_aside),
        TEST(a_newer_format_is_not_damage),
        TEST(what_may_not_be_read_is_not_damage),
        TEST(leftovers_of_a_killed_save_are_removed),
        TEST(links_of_our_names_are_replaced_and_their_targets_kept),
        TEST(only_our_names_are_checkpoints),
        TEST(tensors_nobody_asks_for_are_left),
        TEST(arrays_that_are_held_are_found),
        TEST(missing_tensors_and_other_shapes_are_refused),
        TEST(meta_must_be_an_object),
        TEST(manifest_keeps_what_it_was_given),
        TEST(manifests_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
