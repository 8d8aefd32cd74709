// A 15 x 15 filter over a 4096 x 4096 image (or image_height x image_width), fp32:
// out[y][x] = sum over i, j of image[y + i][x + j] * filter[i][j].
//
// Each block stages the part of the image that it needs in shared memory; each thread sums tile_size_x x tile_size_y
// outputs, block_size apart, in registers; the filter lies in constant memory.
//
// image [4096 + 14, 4096 + 14], out [4096, 4096].
// Tunables: block_size_x, block_size_y, tile_size_x, tile_size_y, filter_height, filter_width;
// read_only: load the image by the read-only path; use_padding: widen the rows in shared memory so that the rows of a
// warp narrower than 32 begin in different banks.
#ifndef image_height
#define image_height 4096
#define image_width 4096
#endif
#ifndef unrolled_rows // of the filter
#define unrolled_rows filter_height
#endif
constexpr int HEIGHT = image_height, WIDTH = image_width;
constexpr int BORDER_Y = filter_height - 1, BORDER_X = filter_width - 1;
constexpr int TILE_Y = block_size_y * tile_size_y, TILE_X = block_size_x * tile_size_x;
constexpr int ROWS = TILE_Y + BORDER_Y, COLUMNS = TILE_X + BORDER_X;

// Of two rows of a warp the second is to begin block_size_x banks after the first.
constexpr bool PADDED = use_padding && block_size_x % 32 != 0 && (COLUMNS - block_size_x) % 32 != 0;
constexpr int STRIDE = PADDED ? COLUMNS + (32 - (COLUMNS - block_size_x) % 32) : COLUMNS;
constexpr bool WHOLE = HEIGHT % TILE_Y == 0 && WIDTH % TILE_X == 0;

__constant__ float weights[filter_height * filter_width];

extern "C" __global__ void convolution(float *__restrict__ out, const float *image)
{
    __shared__ float part[ROWS * STRIDE];
    const int x0 = blockIdx.x * TILE_X, y0 = blockIdx.y * TILE_Y;

    // 1. load: the block's part of the image
    for (int row = threadIdx.y; row < ROWS; row += block_size_y)
        for (int column = threadIdx.x; column < COLUMNS; column += block_size_x) {
            const bool inside = WHOLE || (y0 + row < HEIGHT + BORDER_Y && x0 + column < WIDTH + BORDER_X);
            if (inside) {
                const float *from = image + (y0 + row) * (WIDTH + BORDER_X) + x0 + column;
                part[row * STRIDE + column] = read_only ? __ldg(from) : *from;
            }
        }
    __syncthreads();

    // 2. accumulate, from where the thread's first output has its corner
    const float *mine = part + threadIdx.y * STRIDE + threadIdx.x;
    float sums[tile_size_y][tile_size_x] = {};
#pragma unroll unrolled_rows
    for (int i = 0; i < filter_height; ++i)
#pragma unroll
        for (int j = 0; j < filter_width; ++j)
#pragma unroll
            for (int ty = 0; ty < tile_size_y; ++ty)
#pragma unroll
                for (int tx = 0; tx < tile_size_x; ++tx)
                    sums[ty][tx] += mine[(ty * block_size_y + i) * STRIDE + tx * block_size_x + j]
                                    * weights[i * filter_width + j];

    // 3. store
#pragma unroll
    for (int ty = 0; ty < tile_size_y; ++ty)
#pragma unroll
        for (int tx = 0; tx < tile_size_x; ++tx) {
            const int y = y0 + threadIdx.y + ty * block_size_y, x = x0 + threadIdx.x + tx * block_size_x;
            if (WHOLE || (y < HEIGHT && x < WIDTH)) out[y * WIDTH + x] = sums[ty][tx];
        }
}
