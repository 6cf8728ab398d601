# MERAK_CHECK_CPU - whether kernels can be compiled for several x86-64
# instruction sets, the best of which is chosen at run time
AC_DEFUN([MERAK_CHECK_CPU], [
  AC_MSG_CHECKING([whether $CC compiles for x86-64-v3 and -v4])
  merak_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -march=x86-64-v4 -mprefer-vector-width=512"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#ifndef __AVX512F__
#error no AVX-512
#endif
]], [[return __builtin_cpu_supports("avx512f");]])],
    [merak_cpu_x86=yes], [merak_cpu_x86=no])
  CFLAGS=$merak_save_CFLAGS
  AC_MSG_RESULT([$merak_cpu_x86])
  AM_CONDITIONAL([CPU_X86], [test "x$merak_cpu_x86" = xyes])
  AS_IF([test "x$merak_cpu_x86" = xyes],
    [AC_DEFINE([MERAK_CPU_X86], [1], [kernels for AVX2 and AVX-512 are there])])
])
