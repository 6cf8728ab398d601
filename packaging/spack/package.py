# SPDX-License-Identifier: Apache-2.0
# package.py - Spack's recipe for Merak: put the folder that this is in into a
# repository of your own as packages/merak, then `spack install merak`
import os

from spack.package import *


class Merak(AutotoolsPackage):
    """Trains foundation models with tensor, pipeline and data parallelism
    under Slurm and PMIx."""

    # There is no release to be fetched yet: from a clone,
    # `spack dev-build -d CLONE merak@main`.
    version("main")

    license("Apache-2.0")

    variant("spank", default=True, description="build Slurm's plugin")

    depends_on("c", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("pmix@4:")
    depends_on("ucx@1.13:")
    depends_on("hdf5~mpi+threadsafe")
    depends_on("onednn@2.6:3")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("zstd")
    # The plugin fits the minor release that it is built with: the site's.
    depends_on("slurm", when="+spank")
    depends_on("cmocka", type="test")

    def configure_args(self):
        args = [
            "--with-hdf5={0}".format(self.spec["hdf5"].prefix),
            "--with-onednn={0}".format(self.spec["onednn"].prefix),
            "--with-slurm-plugindir={0}".format(self.plugin_dir),
        ]
        if self.spec.satisfies("+spank"):
            args.append("--with-slurm={0}".format(self.spec["slurm"].prefix))
        else:
            args.append("--without-spank")
        return args

    @property
    def plugin_dir(self):
        return os.path.join(self.prefix.lib, "slurm")

    @run_after("install")
    def say_how_to_load(self):
        if self.spec.satisfies("+spank"):
            tty.msg(
                "Slurm loads the plugin by this line in plugstack.conf: "
                "include {0}/share/merak/plugstack.conf.d/*.conf".format(self.prefix)
            )
