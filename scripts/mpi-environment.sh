# SPDX-License-Identifier: Apache-2.0
# Source this: lets Open MPI start more ranks than cores, also as root, on this host only. What a user's own cluster
# decides is not touched: only variables that are unset get a value.
: "${OMPI_ALLOW_RUN_AS_ROOT:=1}" "${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:=1}"
: "${OMPI_MCA_rmaps_base_oversubscribe:=1}" "${OMPI_MCA_hwloc_base_binding_policy:=none}"
: "${OMPI_MCA_mpi_yield_when_idle:=1}"
# Seconds that mpirun, when told to end, leaves the ranks to save a checkpoint: it waits so long before it passes SIGTERM
# on and as long again before SIGKILL, also after a rank has failed. Send SIGUSR1 to mpirun where that is too short.
: "${OMPI_MCA_odls_base_sigkill_timeout:=3}"
: "${OMPI_MCA_oob_tcp_if_include:=lo}" "${OMPI_MCA_btl_tcp_if_include:=lo}"
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe
export OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_mpi_yield_when_idle OMPI_MCA_oob_tcp_if_include
export OMPI_MCA_btl_tcp_if_include OMPI_MCA_odls_base_sigkill_timeout
# The generic name may belong to MPICH: then there is no MPIRUN, which is empty. mpirun.openmpi calls itself OpenRTE.
if [ -z "${MPIRUN:-}" ]; then
  MPIRUN=$(command -v mpirun.openmpi || command -v mpirun || true)
  case $([ -z "$MPIRUN" ] || "$MPIRUN" --version 2>/dev/null) in *"Open MPI"* | *OpenRTE*) ;; *) MPIRUN= ;; esac
fi
export MPIRUN
