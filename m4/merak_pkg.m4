# MERAK_CHECK_PKG(VARIABLE, name, modules, header, library, debian-package,
#                 [what is missing without it])
#
# A library that Merak uses.  --with-name=DIR names where it is installed:
# DIR's pkg-config file if it has one, else DIR/include, DIR/lib and -llibrary.
# Without DIR, pkg-config is asked for each of the modules in turn.  Sets
# VARIABLE_CFLAGS, VARIABLE_LIBS and merak_version_name, or stops with one line
# that says what to install.
#
# With a last argument Merak can be built --without-name: then the version
# shown says what is missing.  HAVE_VARIABLE, a conditional of automake and in
# config.h, tells.
AC_DEFUN([MERAK_CHECK_PKG], [
  AC_ARG_WITH([$2], [m4_ifval([$7],
      [AS_HELP_STRING([--without-$2], [build without $2: $7])
])AS_HELP_STRING([--with-$2=DIR], [where $2 is installed])],
    [], [with_$2=yes])
  AC_ARG_VAR([$1_CFLAGS], [compiler flags for $2, instead of finding them])
  AC_ARG_VAR([$1_LIBS], [linker flags for $2, instead of finding them])
  AS_IF([test "x$with_$2" = xno],
    [m4_ifval([$7],
       [merak_version_$2="none: $7"
        $1_CFLAGS=
        $1_LIBS=],
       [AC_MSG_ERROR([Merak cannot be built without $2])])],
    [_MERAK_FIND_PKG($@)
     m4_ifval([$7],
       [AC_DEFINE([HAVE_$1], [1], [$2 is there])])])
  m4_ifval([$7], [AM_CONDITIONAL([HAVE_$1], [test "x$with_$2" != xno])])
])

# Its search, for one that is wanted.
AC_DEFUN([_MERAK_FIND_PKG], [
  AC_MSG_CHECKING([for $2])
  merak_saved_path=$PKG_CONFIG_PATH
  merak_saved_CPPFLAGS=$CPPFLAGS
  AS_IF([test "x$with_$2" != xyes],
    [AS_IF([test ! -e "$with_$2/include/$4"],
       [AC_MSG_ERROR([--with-$2=$with_$2: there is no $with_$2/include/$4])])
     PKG_CONFIG_PATH="$with_$2/lib/pkgconfig:$with_$2/lib64/pkgconfig:$PKG_CONFIG_PATH"
     export PKG_CONFIG_PATH])
  merak_version_$2=
  for merak_module in $3; do
    AS_IF([test -z "$merak_version_$2" && test -z "$$1_LIBS" &&
           $PKG_CONFIG --exists $merak_module 2>/dev/null],
      [merak_version_$2=$($PKG_CONFIG --modversion $merak_module)
       $1_CFLAGS=$($PKG_CONFIG --cflags $merak_module)
       $1_LIBS=$($PKG_CONFIG --libs $merak_module)])
  done
  AS_IF([test -z "$merak_version_$2"],
    [merak_version_$2="found, version unknown"
     AS_IF([test "x$with_$2" != xyes && test -z "$$1_LIBS"],
       [$1_CFLAGS="-I$with_$2/include"
        $1_LIBS="-L$with_$2/lib -l$5"])])
  PKG_CONFIG_PATH=$merak_saved_path
  CPPFLAGS="$CPPFLAGS $$1_CFLAGS"
  AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <$4>]])],
    [AS_IF([test -z "$$1_LIBS"], [$1_LIBS=-l$5])
     AC_MSG_RESULT([$merak_version_$2])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$2 was not found ($4): install it (Debian: $6)m4_ifval([$7], [, name its place by --with-$2=DIR, or build --without-$2], [ or name its place by --with-$2=DIR])])])
  CPPFLAGS=$merak_saved_CPPFLAGS
])
