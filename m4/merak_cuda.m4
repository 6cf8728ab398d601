# MERAK_CHECK_CUDA - the module of the cuda backend, merak_cuda.so
#
# Nothing of CUDA is linked to libmerak or merak; the module is opened at run
# time.  It is built where nvcc is found.
#
#   --with-cuda=DIR         the toolkit is in DIR; an error if it is not
#   --without-cuda          build without the module
#   --with-cuda-arch=LIST   compute capabilities ["80 90a 100"]; the first is
#                           there for later ones, too, as PTX
#
# Sets NVCC, CUDA_DIR, CUDA_CPPFLAGS, CUDA_LDFLAGS, CUDA_ARCH_FLAGS, CUDA_ARCHS
# and the conditional HAVE_CUDA.
AC_DEFUN([MERAK_CHECK_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=DIR], [where the CUDA toolkit is])
AS_HELP_STRING([--without-cuda], [build without the cuda backend])],
    [], [with_cuda=auto])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST],
       [compute capabilities of GPUs ["80 90a 100"]])],
    [], [with_cuda_arch="80 90a 100"])
  AC_ARG_VAR([NVCC], [CUDA's compiler])

  AS_CASE([$with_cuda],
    [no], [NVCC=],
    [auto|yes],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
  AS_IF([test -z "$NVCC" && test "x$with_cuda" != xauto &&
         test "x$with_cuda" != xno],
    [AC_MSG_ERROR([--with-cuda: nvcc was not found: name the toolkit's place by --with-cuda=DIR])])

  merak_cuda="none: no backend cuda"
  CUDA_CPPFLAGS= CUDA_LDFLAGS= CUDA_ARCH_FLAGS=
  AS_IF([test -n "$NVCC"], [
    # nvcc may be a link, or a script of a package
    merak_cuda_dir=$(dirname "$(dirname "$(readlink -f "$NVCC")")")
    AS_CASE([$with_cuda], [auto|yes], [], [merak_cuda_dir=$with_cuda])
    # cuBLASLt may be a package of its own, as Python's: CPPFLAGS says where
    merak_cuda_found=$merak_cuda_dir/include/cublasLt.h
    AS_IF([test ! -e "$merak_cuda_found"],
      [merak_cuda_cppflags=$CPPFLAGS
       CPPFLAGS="$CPPFLAGS -isystem $merak_cuda_dir/include"
       AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <cublasLt.h>]])],
         [merak_cuda_found=CPPFLAGS], [merak_cuda_found=])
       CPPFLAGS=$merak_cuda_cppflags])
    AS_IF([test -z "$merak_cuda_found"],
      [AS_IF([test "x$with_cuda" = xauto],
         [NVCC= merak_cuda="none: there is nvcc, and no $merak_cuda_dir/include/cublasLt.h"],
         [AC_MSG_ERROR([--with-cuda: there is no $merak_cuda_dir/include/cublasLt.h; CPPFLAGS=-IDIR names another folder])])])
  ])
  AS_IF([test -n "$NVCC"], [
    AC_MSG_CHECKING([for CUDA's version])
    merak_cuda_version=$("$NVCC" --version |
      sed -n 's/.*release \([[0-9.]]*\).*/\1/p')
    AC_MSG_RESULT([$merak_cuda_version])
    # as the system's: the compiler's warnings are for our own headers
    CUDA_CPPFLAGS="-isystem $merak_cuda_dir/include"
    merak_cuda_lib=$merak_cuda_dir/lib64
    AS_IF([test ! -d "$merak_cuda_lib"], [merak_cuda_lib=$merak_cuda_dir/lib])
    CUDA_LDFLAGS="-L$merak_cuda_lib -Wl,-rpath,$merak_cuda_lib"
    for merak_arch in $with_cuda_arch; do
      CUDA_ARCH_FLAGS="$CUDA_ARCH_FLAGS -gencode arch=compute_$merak_arch,code=sm_$merak_arch"
    done
    merak_arch=$(set -- $with_cuda_arch; echo "$[]1")
    CUDA_ARCH_FLAGS="$CUDA_ARCH_FLAGS -gencode arch=compute_$merak_arch,code=compute_$merak_arch"
    merak_cuda="CUDA $merak_cuda_version, for sm_$(echo $with_cuda_arch | sed 's/ /, sm_/g')"
  ])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LDFLAGS])
  AC_SUBST([CUDA_DIR], [$merak_cuda_dir])
  AC_SUBST([CUDA_ARCH_FLAGS])
  AC_SUBST([CUDA_ARCHS], [$with_cuda_arch])
  AM_CONDITIONAL([HAVE_CUDA], [test -n "$NVCC"])
])
