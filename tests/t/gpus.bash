# SPDX-License-Identifier: Apache-2.0
# gpus.bash - GPUs and their libraries where there are none; for scripts that
# load cluster.bash, too

# modules: what plays CUDA and its libraries, in MODULES
modules()
{
    local libs=$BUILD/tests/unit/stand_in_cuda/.libs

    [ -e "$libs/merak_cuda.so" ] || skip "built without CUDA"
    MODULES=$BATS_TEST_TMPDIR
    ln -s "$libs/merak_cuda.so" "$BUILD/runtime/nccl/.libs/merak_nccl.so" \
        "$MODULES"
    ln -s "$libs/cublaslt.so" "$MODULES/libcublasLt.so.13"
    ln -s "$libs/cudnn.so" "$MODULES/libcudnn.so.9"
    ln -s "$libs/nccl.so" "$MODULES/libnccl.so.2"
}
