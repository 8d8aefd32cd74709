// Functions of the real library that are not supported here.
#include "communicator.hpp"

using namespace workbench::nccl;

namespace {
constexpr const char* kShape = "make a new communicator of the ranks that are left";
constexpr const char* kMemory = "ranks see each other's memory in collectives and messages alone";
constexpr const char* kDevice = "kernels take no part in collectives; call them from the host";
constexpr const char* kFigures = "there are no figures of a communicator";
}  // namespace

// The arguments are ignored: a caller may pass more than a function takes.
#define REFUSED(name, why)                                                             \
  NCCL_API name() {                                                                    \
    return call(#name, [] {                                                            \
      throw Failed{kInvalidUsage, std::string("not part of this NCCL: ") + why, true}; \
    });                                                                                \
  }

REFUSED(ncclCommGetUniqueId, kShape)
REFUSED(ncclCommGrow, kShape)
REFUSED(ncclCommResume, kShape)
REFUSED(ncclCommRevoke, kShape)
REFUSED(ncclCommShrink, kShape)
REFUSED(ncclCommSuspend, kShape)

REFUSED(ncclCommWindowDeregister, kMemory)
REFUSED(ncclCommWindowRegister, kMemory)
REFUSED(ncclGetLsaDevicePointer, kMemory)
REFUSED(ncclGetLsaMultimemDevicePointer, kMemory)
REFUSED(ncclGetMultimemDevicePointer, kMemory)
REFUSED(ncclGetPeerDevicePointer, kMemory)
REFUSED(ncclPutSignal, kMemory)
REFUSED(ncclSignal, kMemory)
REFUSED(ncclWaitSignal, kMemory)
REFUSED(ncclWinGetUserPtr, kMemory)

REFUSED(ncclDevCommCreate, kDevice)
REFUSED(ncclDevCommDestroy, kDevice)
REFUSED(ncclGinBarrierCreateRequirement, kDevice)
REFUSED(ncclGinInboxA2ACreateRequirement, kDevice)
REFUSED(ncclGinOutboxCreateRequirement, kDevice)
REFUSED(ncclLLA2ACalcSlots, kDevice)
REFUSED(ncclLLA2ACreateRequirement, kDevice)
REFUSED(ncclLsaBarrierCreateRequirement, kDevice)
REFUSED(ncclTeamLsa, kDevice)
REFUSED(ncclTeamRail, kDevice)
REFUSED(ncclTeamRankToLsa, kDevice)
REFUSED(ncclTeamRankToWorld, kDevice)
REFUSED(ncclTeamWorld, kDevice)

REFUSED(ncclCommMemStats, kFigures)
REFUSED(ncclCommQueryProperties, kFigures)
REFUSED(ncclGroupSimulateEnd, kFigures)

// The library writes no log.
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInit() {}
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal() {}
