/* A CUDA runtime that claims one GPU of a chosen compute capability.
 *
 * Preloaded into a Python process, it answers what PyTorch asks before it selects an attention
 * kernel: how many GPUs there are, which is current, and what it can do. SPLITHEADS_SM holds the
 * compute capability, 80 for 8.0. Nothing can be allocated or launched through it.
 *
 * simulate.py compiles it against the driver_types.h of the CUDA runtime that the torch in
 * question was built for, because the layout of cudaDeviceProp differs between CUDA versions, and
 * gives that version as CUDA_NUMBER (13020 for 13.2).
 */
#include <stdlib.h>
#include <string.h>
#include <driver_types.h>

#define ANSWER(pointer, value) (*(pointer) = (value), cudaSuccess)

cudaError_t cudaGetDeviceCount(int *count) { return ANSWER(count, 1); }
cudaError_t cudaGetDevice(int *device) { return ANSWER(device, 0); }
cudaError_t cudaSetDevice(int device) { (void)device; return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return ANSWER(version, CUDA_NUMBER); }
cudaError_t cudaDriverGetVersion(int *version) { return ANSWER(version, CUDA_NUMBER); }

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)attribute, (void)device;
    return ANSWER(value, 0);
}

/* CUDA 12 exports the name with _v2, CUDA 13 the one without. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *gpu, int device)
{
    const char *sm = getenv("SPLITHEADS_SM");
    int capability = sm ? atoi(sm) : 0;
    (void)device;
    if (capability < 50)
        return cudaErrorInvalidValue;
    memset(gpu, 0, sizeof *gpu);
    strcpy(gpu->name, "no GPU: a stand-in");
    gpu->major = capability / 10;
    gpu->minor = capability % 10;
    /* The selector does not read these; they only have to be plausible. */
    gpu->warpSize = 32;
    gpu->multiProcessorCount = 100;
    gpu->maxThreadsPerBlock = 1024;
    gpu->totalGlobalMem = (size_t)1 << 36;
    gpu->sharedMemPerBlockOptin = 1 << 17;
    gpu->sharedMemPerMultiprocessor = 1 << 17;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *gpu, int device)
{
    return cudaGetDeviceProperties(gpu, device);
}

/* Asked for while a device is set up, never used. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    return ANSWER(greatest, -1);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    static char nothing;
    (void)flags, (void)priority;
    return ANSWER(stream, (cudaStream_t)&nothing);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    (void)stream;
    return ANSWER(status, cudaStreamCaptureStatusNone);
}
