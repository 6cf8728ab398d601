# MERAK_CHECK_DNNL - oneDNN, the matrix products of the cpu backend
# --with-onednn=DIR looks in DIR/include and DIR/lib.  Sets DNNL_CFLAGS and
# DNNL_LIBS; an error if it is not there.
AC_DEFUN([MERAK_CHECK_DNNL], [
  AC_ARG_WITH([onednn],
    [AS_HELP_STRING([--with-onednn=DIR], [where oneDNN (2.6 or later, or 3) is])],
    [], [with_onednn=yes])
  DNNL_CFLAGS=
  DNNL_LIBS=-ldnnl
  AS_IF([test "x$with_onednn" != xyes],
    [DNNL_CFLAGS="-I$with_onednn/include"
     DNNL_LIBS="-L$with_onednn/lib -ldnnl"])
  merak_save_CPPFLAGS=$CPPFLAGS
  merak_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $DNNL_CFLAGS"
  LIBS="$DNNL_LIBS $LIBS"
  AC_MSG_CHECKING([for oneDNN 2.6 or later])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR < 2 || \
    (DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR < 6)
#error too old
#endif
      ]],
    [[return dnnl_version()->major != DNNL_VERSION_MAJOR;]])],
    [AC_COMPUTE_INT([merak_onednn_major], [DNNL_VERSION_MAJOR],
       [#include <oneapi/dnnl/dnnl_version.h>])
     AC_COMPUTE_INT([merak_onednn_minor], [DNNL_VERSION_MINOR],
       [#include <oneapi/dnnl/dnnl_version.h>])
     merak_version_onednn=$merak_onednn_major.$merak_onednn_minor
     AC_MSG_RESULT([$merak_version_onednn])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([oneDNN 2.6 or later was not found: install libdnnl-dev, or name its place with --with-onednn=DIR])])
  CPPFLAGS=$merak_save_CPPFLAGS
  LIBS=$merak_save_LIBS
  AC_SUBST([DNNL_CFLAGS])
  AC_SUBST([DNNL_LIBS])
])
