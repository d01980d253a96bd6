#!/bin/sh
# pack-gpu.sh FOLDER -- packs what a bare machine with a GPU (CUDA toolkit, gcc, make, perhaps PyTorch) lacks for building and
# testing flowlua: Lua with its headers, busted, jansson, zlib, libedit, oneDNN, Open MPI. Run it where these are installed (make
# install-deps), copy the folder beside the sources, and there:
#
#     . FOLDER/env.sh && make -j"$(nproc)" all && make -k test-gpu bench-gpu
#
# Both machines must have the same processor architecture, and the other one no older C library. Libraries below the
# packed ones that the other machine has are kept; PyTorch there never sees the packed ones (FLOW_PACK_LIBRARIES).
set -eu
folder=${1:?usage: pack-gpu.sh FOLDER}
triple=$(gcc -dumpmachine)
system=/usr/lib/$triple
[ ! -e "$folder" ] || { echo "pack-gpu: $folder exists; name a new folder" >&2; exit 1; }
mkdir -p "$folder/bin" "$folder/include" "$folder/lib" "$folder/share/lua" "$folder/lib/lua"
folder=$(cd "$folder" && pwd)

need() {
    [ -e "$1" ] || { echo "pack-gpu: $1 is missing: install $2 (make install-deps)" >&2; exit 1; }
}

# library FILE: it and what it needs, without what every system has.
library() {
    cp -L "$1" "$folder/lib/$(basename "$1")"
    ldd "$1" | awk '$3 ~ /^\// {print $3}' | while read -r path; do
        case $(basename "$path") in
            libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | ld-linux* | libgcc_s.so* | libstdc++.so* | libutil.so* | libresolv.so*) ;;
            *) [ -e "$folder/lib/$(basename "$path")" ] || cp -L "$path" "$folder/lib/" ;;
        esac
    done
}

need /usr/include/lua5.4 liblua5.4-dev
need "$system/liblua5.4.a" liblua5.4-dev
need "$system/libjansson.a" libjansson-dev
need "$system/libz.so" zlib1g-dev
need /usr/include/histedit.h libedit-dev
need /usr/share/lua/5.4/busted lua-busted
cp -RL /usr/include/lua5.4 "$folder/include/"
[ ! -f "/usr/include/$triple/lua5.4-deb-multiarch.h" ] || cp -L "/usr/include/$triple/lua5.4-deb-multiarch.h" "$folder/include/lua5.4/"
cp -L /usr/include/jansson.h /usr/include/jansson_config.h /usr/include/zlib.h /usr/include/zconf.h /usr/include/histedit.h "$folder/include/"
[ ! -f "/usr/include/$triple/zconf.h" ] || cp -L "/usr/include/$triple/zconf.h" "$folder/include/"
[ ! -d /usr/include/editline ] || cp -RL /usr/include/editline "$folder/include/"
cp -L "$system/liblua5.4.a" "$system/libjansson.a" "$folder/lib/"
for name in libz.so libz.so.1 libedit.so.2; do library "$system/$name"; done
for path in "$system"/libdnnl.so.[0-9] "$system"/libopenblas.so.0; do [ ! -e "$path" ] || library "$path"; done

# ---- busted and the modules it uses ----

cp -RL /usr/share/lua/5.4/. "$folder/share/lua/"
cp -RL "$system/lua/5.4/." "$folder/lib/lua/"
cat >"$folder/bin/busted" <<'END'
#!/bin/sh
# busted, run by the interpreter that --lua=PROGRAM names.
interpreter=lua
for argument; do
    shift
    case $argument in
        --lua=*) interpreter=${argument#--lua=} ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "$interpreter" "$(dirname "$0")/busted.lua" "$@"
END
echo "require 'busted.runner'({standalone = false})" >"$folder/bin/busted.lua"
chmod 755 "$folder/bin/busted"

# ---- Open MPI, which finds its parts through OPAL_PREFIX ----

mpi=
if [ -d "$system/openmpi/include" ] && command -v orterun >/dev/null; then
    mpi=yes
    prefix=$folder/openmpi
    mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share"
    cp -RL "$system/openmpi/include" "$prefix/"
    cp -RL "$system/openmpi/lib/openmpi3" "$prefix/lib/openmpi"
    cp -RL /usr/share/openmpi "$prefix/share/"
    for name in orterun orted; do cp -L "$(command -v $name)" "$prefix/bin/"; done
    cp "$prefix/bin/orterun" "$prefix/bin/mpirun"
    library "$(readlink -f "$system/openmpi/lib/libmpi.so")"
    mv "$folder/lib/$(basename "$(readlink -f "$system/openmpi/lib/libmpi.so")")" "$prefix/lib/libmpi.so"
    # all ranks are on one host: no fast networks, and no other programming models
    for file in "$prefix"/lib/openmpi/*.so; do
        if ldd "$file" | grep -qE 'lib(ucp|fabric|psm|ibverbs|oshmem|cuda)'; then rm "$file"; else library "$file"; fi
    done
    library "$prefix/bin/orterun"
    rm -f "$folder"/lib/mca_*.so "$folder"/lib/libompi_*.so "$folder/lib/orterun"
    cp "$prefix/lib/libmpi.so" "$folder/lib/libmpi.so.40"
    [ ! -d "$system/pmix2" ] || cp -RL "$system/pmix2" "$folder/lib/"
fi

# ---- cuBLASLt's headers, for a toolkit that is the compiler alone; its library then comes with PyTorch ----

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
if [ -f "$toolkit/include/cublasLt.h" ]; then
    mkdir -p "$folder/cuda"
    cp -L "$toolkit/include/cublasLt.h" "$toolkit/include/cublas_api.h" "$folder/cuda/"
fi

find "$folder" -name '*.so*' -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
(cd "$folder" && tar -czf pack.tar.gz -- * && for name in *; do [ "$name" = pack.tar.gz ] || rm -r "$name"; done)

cat >"$folder/env.sh" <<END
# Unpacks what lies here, once, and makes it known to gcc, make, the loader and Lua; from the folder above: . $(basename "$folder")/env.sh
pack=\${BASH_SOURCE:-}
pack=\$(cd "\$(dirname "\${pack:-./$(basename "$folder")/env.sh}")" && pwd)
FLOW_COMMIT=$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)
END
cat >>"$folder/env.sh" <<'END'
if [ ! -d "$pack/lib" ]; then
    tar -xzf "$pack/pack.tar.gz" -C "$pack"
    # the libraries that the loader finds here, without our own
    system=$(ldconfig -p 2>/dev/null || /sbin/ldconfig -p)
    for file in "$pack"/lib/*.so.*; do
        case $(basename "$file") in
            libmpi* | libopen-* | libmca* | libpmix* | libdnnl* | libedit*) ;;
            *) case $system in *"$(basename "$file") "*) rm "$file" ;; esac ;;
        esac
    done
fi
if [ -z "${FLOW_PACK:-}" ]; then
    export FLOW_PACK="$pack" FLOW_COMMIT FLOW_PACK_LIBRARIES="${LD_LIBRARY_PATH:-}"
    export PATH="$pack/bin:$pack/openmpi/bin:$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin"
    toolkit=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    toolkit=$(dirname "$(dirname "$(readlink -f "$toolkit")")")
    export CPATH="$pack/include${CPATH:+:$CPATH}"
    [ -f "$toolkit/include/cublasLt.h" ] || CPATH="$CPATH:$pack/cuda"
    export LIBRARY_PATH="$pack/lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
    export LD_LIBRARY_PATH="$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LUA_PATH="./?.lua;$pack/share/lua/?.lua;$pack/share/lua/?/init.lua;;"
    export LUA_CPATH="$pack/lib/lua/?.so;;"
    export OPAL_PREFIX="$pack/openmpi" OPAL_BINDIR="$pack/openmpi/bin" OPAL_LIBDIR="$pack/openmpi/lib"
    export OPAL_PKGLIBDIR="$pack/openmpi/lib/openmpi" OPAL_PKGDATADIR="$pack/openmpi/share/openmpi"
    export PMIX_INSTALL_PREFIX="$pack/lib/pmix2" PMIX_LIBDIR="$pack/lib/pmix2/lib" PMIX_PKGLIBDIR="$pack/lib/pmix2/lib/pmix"
    export OMPI_MCA_plm=isolated    # all ranks are on this host: it need not have ssh
    # cuBLASLt, cuDNN, cuFFT, cuSOLVER and NVRTC: the toolkit's, or those that PyTorch brought along
    for library in FLOW_CUBLASLT=cublasLt FLOW_CUDNN=cudnn FLOW_CUFFT=cufft FLOW_CUSOLVER=cusolver FLOW_NVRTC=nvrtc; do
        name="lib${library#*=}.so.1[1-3]"
        [ "$library" != FLOW_CUDNN=cudnn ] || name=libcudnn.so.9
        if ! ls "$toolkit"/lib64/ 2>/dev/null | grep -q "$name" && ! ldconfig -p 2>/dev/null | grep -q "$name"; then
            found=$(LD_LIBRARY_PATH=$FLOW_PACK_LIBRARIES python3 -c 'import glob, sys, sysconfig
print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib/" + sys.argv[1]), sep="\n")' "$name" 2>/dev/null | head -n 1)
            [ -z "$found" ] || export "${library%%=*}=$found"
        fi
    done
    # make: no packages to install, Lua and Open MPI lie here
    MAKEFLAGS="${MAKEFLAGS:-} LUA_CFLAGS=-I$pack/include/lua5.4 LUA_LIB=$pack/lib/liblua5.4.a JANSSON_LIB=$pack/lib/libjansson.a PACKAGES_BUILD= PACKAGES_RUN= PACKAGES_TEST="
    [ ! -d "$pack/openmpi" ] || MAKEFLAGS="$MAKEFLAGS MPI_CFLAGS=-I$pack/openmpi/include MPI_LIBS=$pack/openmpi/lib/libmpi.so"
    export MAKEFLAGS
fi
END
[ -n "$mpi" ] || echo "pack-gpu: Open MPI is not installed here: one rank only" >&2
du -sh "$folder" | sed 's/\t/ in /'
