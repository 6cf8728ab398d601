# MERAK_CHECK_SLURM
#
# The SPANK plugin needs slurm/spank.h and slurm/slurm.h; nothing is linked.
# A plugin fits one Slurm minor release: the version is shown at the end.
#
#   --with-slurm=DIR            headers in DIR/include (default: system)
#   --with-slurm-plugindir=DIR  where spank_merak.so goes ($libdir/slurm)
#   --without-spank             build without the plugin
AC_DEFUN([MERAK_CHECK_SLURM], [
  AC_ARG_WITH([spank],
    [AS_HELP_STRING([--without-spank], [do not build the SPANK plugin])],
    [], [with_spank=yes])
  AC_ARG_WITH([slurm],
    [AS_HELP_STRING([--with-slurm=DIR], [Slurm headers in DIR/include])],
    [], [with_slurm=yes])
  AC_ARG_WITH([slurm-plugindir],
    [AS_HELP_STRING([--with-slurm-plugindir=DIR],
       [install the SPANK plugin in DIR [LIBDIR/slurm]])],
    [slurmplugindir=$withval], [slurmplugindir='${libdir}/slurm'])
  AC_SUBST([slurmplugindir])

  SLURM_CPPFLAGS=
  AS_CASE([$with_slurm],
    [no], [with_spank=no],
    [yes], [],
    [SLURM_CPPFLAGS="-isystem $with_slurm/include"])
  AC_SUBST([SLURM_CPPFLAGS])

  merak_slurm_version=none
  AS_IF([test "x$with_spank" != xno], [
    merak_saved_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
    AC_CHECK_HEADERS([slurm/spank.h slurm/slurm.h], [],
      [AC_MSG_ERROR([slurm/spank.h and slurm/slurm.h not found: install
    Slurm's headers (Debian: libslurm-dev; SchedMD's packages: slurm-devel),
    name their place by --with-slurm=DIR, or build --without-spank])])
    AC_MSG_CHECKING([for Slurm's version])
    AC_COMPUTE_INT([merak_slurm_number], [SLURM_VERSION_NUMBER],
      [#include <slurm/slurm_version.h>],
      [AC_MSG_ERROR([slurm/slurm_version.h does not define it])])
    merak_slurm_version=$(printf '%d.%02d.%d' \
      $((merak_slurm_number >> 16)) $((merak_slurm_number >> 8 & 255)) \
      $((merak_slurm_number & 255)))
    AC_MSG_RESULT([$merak_slurm_version])
    CPPFLAGS=$merak_saved_CPPFLAGS
  ])
  AM_CONDITIONAL([BUILD_SPANK], [test "x$with_spank" != xno])
])
