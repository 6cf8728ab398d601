/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_facts.c - which GPUs and drivers are refused or warned of, and what
 * is told of a GPU, on machines that are not there
 */
#include "config.h"

#include "unit/near.h"

#include "kernels/cuda/cuda_facts.h"

#include <string.h>

static const struct merak_cuda_facts h200 = {
    .name = "NVIDIA H200",
    .bus = "0000:1b:00.0",
    .driver = {13000, 13000, "580.95.05"},
    .major = 9,
    .sms = 132,
    .memory_bytes = (size_t)141 << 30,
    .ecc = MERAK_CUDA_ECC_ON,
};

/* --- drivers ---------------------------------------------------------------
 */

static void drivers_are_judged(void **state)
{
    static const struct {
        struct merak_cuda_driver driver;
        const char *text; /* NULL: it will do */
    } rows[] = {
        {{0, 13000, ""},
         "there is no NVIDIA driver on this node (libcuda.so.1 was not found): "
         "install one, start the job on nodes with GPUs, or use --backend cpu"},
        {{12040, 13000, "550.54.15"},
         "the NVIDIA driver on this node is 550.54.15, for CUDA 12.4, and this "
         "Merak needs one for 13.0 or later, release 580: update the driver, "
         "or use --backend cpu"},
        {{11080, 12080, ""},
         "the NVIDIA driver on this node is for CUDA 11.8, and this Merak "
         "needs one for 12.0 or later, release 525: update the driver, or use "
         "--backend cpu"},
        {{13000, 13010, "580.95.05"}, NULL},
        {{13000, 13000, "580.95.05"}, NULL},
        {{14000, 13000, ""}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_error err = {.status = MERAK_OK};

        assert_int_equal(merak_cuda_check_driver(&rows[i].driver, &err),
                         rows[i].text == NULL ? MERAK_OK
                                              : MERAK_ERR_UNSUPPORTED);
        if (rows[i].text != NULL)
            assert_string_equal(err.text, rows[i].text);
    }
}

/* --- devices ---------------------------------------------------------------
 */

static void change_nothing(struct merak_cuda_facts *f)
{
    (void)f;
}

static void be_a_slice(struct merak_cuda_facts *f)
{
    strcpy(f->name, "NVIDIA H200 MIG 1g.18gb");
}

static void be_cut_in_slices(struct merak_cuda_facts *f)
{
    f->mig = true;
}

static void be_a_v100(struct merak_cuda_facts *f)
{
    strcpy(f->name, "Tesla V100");
    f->major = 7;
}

static void be_a_b200(struct merak_cuda_facts *f)
{
    strcpy(f->name, "NVIDIA B200");
    f->major = 10;
}

static void be_a_4090(struct merak_cuda_facts *f)
{
    f->major = 8;
    f->minor = 9;
}

static void let_nobody_in(struct merak_cuda_facts *f)
{
    f->prohibited = true;
}

static void devices_are_judged(void **state)
{
    static const struct {
        void (*change)(struct merak_cuda_facts *f);
        const char *archs;
        const char *text; /* NULL: it will do */
    } rows[] = {
        {change_nothing, "80 90a 100", NULL},
        {change_nothing, "90a", NULL},
        {change_nothing, "80", NULL}, /* PTX */
        {be_a_4090, "80 90a", NULL},  /* the code of 8.0 */
        {be_a_4090, "90a 80", NULL},
        {be_a_b200, "80 90a", NULL}, /* PTX of 8.0 */
        {be_a_b200, "90a",
         "GPU 2 (NVIDIA B200) has compute capability 10.0, and this Merak was "
         "built for 90a: build it with --with-cuda-arch=\"90a 100\", or use "
         "--backend cpu"},
        {be_a_b200, "90a 80",
         "GPU 2 (NVIDIA B200) has compute capability 10.0, and this Merak was "
         "built for 90a 80: build it with --with-cuda-arch=\"90a 80 100\", or "
         "use --backend cpu"},
        {be_a_4090, "90a",
         "GPU 2 (NVIDIA H200) has compute capability 8.9, and this Merak was "
         "built for 90a: build it with --with-cuda-arch=\"90a 89\", or use "
         "--backend cpu"},
        {be_a_v100, "80",
         "GPU 2 (Tesla V100) has compute capability 7.0 and Merak needs 8.0 or "
         "later: use newer GPUs, or --backend cpu"},
        {be_a_slice, "80 90a",
         "GPU 2 (NVIDIA H200 MIG 1g.18gb) is divided into MIG instances and "
         "Merak plans for whole GPUs: ask for a whole one, or use --backend "
         "cpu"},
        {be_cut_in_slices, "80 90a",
         "GPU 2 (NVIDIA H200) is divided into MIG instances and Merak plans "
         "for whole GPUs: ask for a whole one, or use --backend cpu"},
        {let_nobody_in, "80 90a",
         "GPU 2 (NVIDIA H200) is in compute mode \"prohibited\": its "
         "administrator sets that back by `nvidia-smi -c DEFAULT`"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_error err = {.status = MERAK_OK};
        struct merak_cuda_facts f = h200;

        rows[i].change(&f);
        assert_int_equal(merak_cuda_check_facts(2, &f, rows[i].archs, &err),
                         rows[i].text == NULL ? MERAK_OK
                                              : MERAK_ERR_UNSUPPORTED);
        if (rows[i].text != NULL)
            assert_string_equal(err.text, rows[i].text);
    }
}

/* --- what the driver's library says -----------------------------------------
 */

static int fails; /* the call that does, by its place; 0: none */
static int opened;

static int answer(int place)
{
    return fails == place ? 3 : 0;
}

static int init(void)
{
    opened++;
    return answer(1);
}

static int shut(void)
{
    opened--;
    return 0;
}

static int release(char *text, unsigned bytes)
{
    assert_true(bytes >= 10);
    strcpy(text, "580.95.05");
    return answer(2);
}

static int find(const char *bus, void **device_p)
{
    assert_string_equal(bus, "0000:1b:00.0");
    *device_p = &opened;
    return answer(3);
}

static int clock_now(void *device, int which, unsigned *mhz_p)
{
    assert_ptr_equal(device, &opened);
    *mhz_p = which == 1 ? 1980 : 3201;
    return answer(4);
}

static int clock_most(void *device, int which, unsigned *mhz_p)
{
    (void)device;
    *mhz_p = which == 1 ? 1985 : 3201;
    return answer(5);
}

static int cap(void *device, unsigned *mw_p)
{
    (void)device;
    *mw_p = 500000;
    return answer(6);
}

static int usual(void *device, unsigned *mw_p)
{
    (void)device;
    *mw_p = 700000;
    return answer(7);
}

static int mig(void *device, unsigned *now_p, unsigned *next_p)
{
    (void)device;
    *now_p = *next_p = 1;
    return answer(8);
}

static int ecc(void *device, int *now_p, int *next_p)
{
    (void)device;
    *now_p = 0;
    *next_p = 1;
    return answer(9);
}

static const struct merak_nvml nvml = {
    init, shut, release, find, clock_now, clock_most, cap, usual, mig, ecc};

static struct merak_cuda_facts gather(int which_fails)
{
    struct merak_cuda_facts f = h200;

    fails = which_fails;
    opened = 0;
    f.driver.release[0] = '\0';
    merak_nvml_gather(&nvml, &f);
    assert_int_equal(opened, which_fails == 1 ? 1 : 0);
    return f;
}

static void facts_are_gathered_and_told(void **state)
{
    struct merak_cuda_facts f = gather(0);
    char text[384];

    (void)state;
    assert_true(f.mig);
    merak_cuda_describe_facts(2, &f, text, sizeof(text));
    assert_string_equal(
        text, "GPU 2 at 0000:1b:00.0, NVIDIA H200, compute capability 9.0, 132 "
              "SMs, 141.0 GiB, ECC off, driver 580.95.05 for CUDA 13.0, SMs at "
              "1980 of 1985 MHz, memory at 3201 of 3201 MHz, power cap 500 W");
    merak_cuda_warn_facts(2, &f, text, sizeof(text));
    assert_string_equal(
        text, "GPU 2 has ECC off: a flipped bit goes unnoticed (nvidia-smi -e "
              "1 and a reset turn it on); GPU 2 may take 500 W of its usual "
              "700: it will be slower (nvidia-smi -pl 700 sets it back)");
    for (size_t bytes = 1; bytes < sizeof(text); bytes += 7) {
        char small[384];

        memset(small, 'x', sizeof(small));
        merak_cuda_describe_facts(2, &f, small, bytes);
        assert_true(strlen(small) < bytes);
        merak_cuda_warn_facts(2, &f, small, bytes);
        assert_true(strlen(small) < bytes);
    }
}

/* What one call does not tell is left out, and the rest is told. */
static void a_call_that_fails_costs_its_fact_alone(void **state)
{
    struct merak_cuda_facts f;

    (void)state;
    for (int place = 1; place <= 9; place++) {
        bool seen = place != 1 && place != 3;

        f = gather(place);
        assert_int_equal(f.driver.release[0] != '\0', place > 2);
        assert_int_equal(f.sm_mhz != 0, seen && place != 4 && place != 5);
        assert_int_equal(f.power_cap_w != 0, seen && place != 6);
        assert_int_equal(f.power_usual_w != 0, seen && place != 7);
        assert_int_equal(f.mig, seen && place != 8);
        assert_int_equal(f.ecc, seen && place != 9 ? MERAK_CUDA_ECC_OFF
                                                   : MERAK_CUDA_ECC_ON);
    }
}

static void a_gpu_that_is_in_order_is_not_warned_of(void **state)
{
    char text[128];

    (void)state;
    merak_cuda_warn_facts(0, &h200, text, sizeof(text));
    assert_string_equal(text, "");
}

static void a_library_that_is_not_there_is_no_error(void **state)
{
    struct merak_nvml none;

    (void)state;
    assert_false(merak_nvml_open("libmerak-no-such.so.1", &none));
    assert_false(merak_nvml_open("libm.so.6", &none)); /* no call of it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers_are_judged),
        cmocka_unit_test(devices_are_judged),
        cmocka_unit_test(facts_are_gathered_and_told),
        cmocka_unit_test(a_call_that_fails_costs_its_fact_alone),
        cmocka_unit_test(a_gpu_that_is_in_order_is_not_warned_of),
        cmocka_unit_test(a_library_that_is_not_there_is_no_error),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("cuda facts", tests, NULL, NULL);
}
