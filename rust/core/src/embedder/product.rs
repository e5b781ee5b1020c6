//! Exact matrix products of bytes: signed activations times unsigned weights.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use multiversion::multiversion;

/// Columns that are packed and multiplied together; every width is a multiple of it.
pub(super) const TILE: usize = 64;

/// Turns a signed byte w into the unsigned byte w + 128, which the instructions need.
const SIGN: u8 = 0x80;

/// Bytes of a column that one instruction multiplies and adds; every depth is a multiple of it.
pub(super) const GROUP: usize = 4;

/// The weights of a tile, of shape [inputs / GROUP, TILE, GROUP].
type Packed = [[u8; TILE * GROUP]];

/// Signed bytes of shape [inputs, outputs].
pub(super) struct Weights {
    bytes: Bytes,
    inputs: usize,
    outputs: usize,
    /// All tiles, packed. A process that embeds one text does not need the memory, and the pages
    /// would take it longer to get than the weights to pack; so they are made by the second product.
    tiles: OnceLock<Vec<[u8; TILE * GROUP]>>,
    used: AtomicBool,
}

impl Weights {
    pub(super) fn new(bytes: Bytes, inputs: usize, outputs: usize) -> Self {
        let (tiles, used) = (OnceLock::new(), AtomicBool::new(false));
        Self { bytes, inputs, outputs, tiles, used }
    }

    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// The weights of each input.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.outputs)
    }

    /// Calls a function with the first column and the weights of each tile.
    #[cfg(target_arch = "x86_64")]
    fn each_tile(&self, mut work: impl FnMut(usize, &Packed)) {
        let groups = self.inputs / GROUP;
        let starts = (0..self.outputs).step_by(TILE);
        if self.used.swap(true, Ordering::Relaxed) {
            let tiles = self.tiles.get_or_init(|| {
                let mut tiles = vec![[0; TILE * GROUP]; groups * self.outputs / TILE];
                for (start, tile) in starts.clone().zip(tiles.chunks_exact_mut(groups)) {
                    pack(&self.bytes, self.outputs, start, tile);
                }
                tiles
            });
            for (start, tile) in starts.zip(tiles.chunks_exact(groups)) {
                work(start, tile);
            }
        } else {
            let mut tile = vec![[0; TILE * GROUP]; groups];
            for start in starts {
                pack(&self.bytes, self.outputs, start, &mut tile);
                work(start, &tile);
            }
        }
    }
}

/// An implementation of the product. Only `available` returns those that need instructions of the
/// processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    #[cfg(target_arch = "x86_64")]
    Vnni512,
    #[cfg(target_arch = "x86_64")]
    Vnni256,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Kernel {
    /// The fastest kernel that this processor can run.
    pub(super) fn fastest() -> Self {
        *Self::available().first().expect("every processor can run the portable kernel")
    }

    /// All kernels that this processor can run, the fastest first.
    pub(super) fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                found.push(Self::Vnni512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni") {
                found.push(Self::Vnni256);
            }
            if is_x86_feature_detected!("avx2") {
                found.push(Self::Avx2);
            }
        }
        found.push(Self::Portable);
        found
    }
}

/// Multiplies `levels` of shape [rows, inputs] with weights, and calls `store` with each part of the
/// product: its first row, its first column, and TILE columns of some rows.
///
/// The weights are signed bytes, and 128 is added to each before it is multiplied. All kernels return
/// the same numbers: no sum of up to 65,536 products overflows 32 bits.
#[cfg_attr(
    target_arch = "x86_64",
    allow(unsafe_code, reason = "calls of functions with x86 instructions")
)]
pub(super) fn multiply(
    kernel: Kernel,
    levels: &[i8],
    weights: &Weights,
    mut store: impl FnMut(usize, usize, &[[i32; TILE]]),
) {
    match kernel {
        #[cfg(target_arch = "x86_64")]
        Kernel::Vnni512 => x86::multiply_by(levels, weights, store, {
            // SAFETY: `available` returns this kernel only if the processor has AVX-512 with VNNI.
            |levels, packed| unsafe { x86::vnni512(levels, packed) }
        }),
        #[cfg(target_arch = "x86_64")]
        Kernel::Vnni256 => x86::multiply_by(levels, weights, store, {
            // SAFETY: `available` returns this kernel only if the processor has AVX-VNNI.
            |levels, packed| unsafe { x86::vnni256(levels, packed) }
        }),
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 => x86::multiply_by(levels, weights, store, {
            // SAFETY: `available` returns this kernel only if the processor has AVX2.
            |levels, packed| unsafe { x86::avx2(levels, packed) }
        }),
        Kernel::Portable => {
            let mut sums = vec![[0; TILE]; weights.outputs / TILE];
            for (row, levels) in levels.chunks_exact(weights.inputs).enumerate() {
                sums.fill([0; TILE]);
                for (level, weights) in levels.iter().zip(weights.rows()) {
                    for (sum, weight) in sums.as_flattened_mut().iter_mut().zip(weights) {
                        *sum += i32::from(*level) * i32::from(*weight ^ SIGN);
                    }
                }
                for (tile, sums) in sums.iter().enumerate() {
                    store(row, tile * TILE, std::slice::from_ref(sums));
                }
            }
        }
    }
}

/// Packs the weights of a tile: the bytes of a column that are multiplied with a group of a row
/// become adjacent.
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2"))]
fn pack(weights: &[u8], outputs: usize, start: usize, packed: &mut Packed) {
    for (rows, packed) in weights.chunks_exact(GROUP * outputs).zip(packed) {
        let part = |row: usize| rows.get(row * outputs + start..)?.first_chunk::<TILE>();
        let (Some(a), Some(b), Some(c), Some(d)) = (part(0), part(1), part(2), part(3)) else {
            return;
        };
        let (columns, _) = packed.as_chunks_mut::<GROUP>();
        for ((((column, a), b), c), d) in columns.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *column = [*a ^ SIGN, *b ^ SIGN, *c ^ SIGN, *d ^ SIGN];
        }
    }
}

/// Kernels with instructions that multiply groups of bytes, five times as fast as the portable
/// kernel.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads and stores of vectors")]
mod x86 {
    #[allow(clippy::wildcard_imports, reason = "long names of instructions")]
    use std::arch::x86_64::*;

    use super::{GROUP, Packed, TILE, Weights};

    /// A group of a row's levels, as a kernel reads it.
    pub(super) trait Group: Copy + Default {
        fn of(levels: [i8; GROUP]) -> Self;
    }

    /// The levels, one after another.
    impl Group for i32 {
        fn of(levels: [i8; GROUP]) -> Self {
            Self::from_le_bytes(levels.map(i8::cast_unsigned))
        }
    }

    /// The even and the odd levels, in 16 bits each.
    impl Group for [i32; 2] {
        fn of([a, b, c, d]: [i8; GROUP]) -> Self {
            let pair = |low: i8, high: i8| i32::from(high) << 16 | i32::from(low) & 0xFFFF;
            [pair(a, c), pair(b, d)]
        }
    }

    /// Multiplies tile by tile, and in each tile blocks of as many rows as fit the registers.
    pub(super) fn multiply_by<const ROWS: usize, G: Group>(
        levels: &[i8],
        weights: &Weights,
        mut store: impl FnMut(usize, usize, &[[i32; TILE]]),
        kernel: impl Fn(&[[G; ROWS]], &Packed) -> [[i32; TILE]; ROWS],
    ) {
        let inputs = weights.inputs;
        let blocks: Vec<_> =
            levels.chunks(ROWS * inputs).map(|rows| interleaved(rows, inputs)).collect();
        let rows = levels.len() / inputs;
        weights.each_tile(|start, packed| {
            for (block, row) in blocks.iter().zip((0..rows).step_by(ROWS)) {
                let found = kernel(block, packed);
                store(row, start, found.get(..rows - row).unwrap_or(&found));
            }
        });
    }

    /// The groups of a block's rows, of shape [inputs / GROUP, ROWS]; missing rows are zero.
    fn interleaved<const ROWS: usize, G: Group>(rows: &[i8], inputs: usize) -> Vec<[G; ROWS]> {
        let mut block = vec![[G::default(); ROWS]; inputs / GROUP];
        for (place, row) in rows.chunks_exact(inputs).enumerate() {
            let (groups, _) = row.as_chunks::<GROUP>();
            for (block, group) in block.iter_mut().zip(groups) {
                if let Some(level) = block.get_mut(place) {
                    *level = G::of(*group);
                }
            }
        }
        block
    }

    /// Defines a kernel for vectors of `$bytes` bytes.
    macro_rules! kernel {
        ($name:ident, $features:literal, $rows:literal, $bytes:literal, $zero:ident, $load:ident,
         $store:ident, $set:ident, $dot:expr) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(levels: &[[i32; $rows]], packed: &Packed) -> [[i32; TILE]; $rows] {
                let mut found = [[0; TILE]; $rows];
                // The sums of four vectors per row fit the registers.
                for part in 0..TILE / $bytes {
                    let mut sums = [[$zero(); 4]; $rows];
                    for (levels, packed) in levels.iter().zip(packed) {
                        let (parts, _) = packed.as_chunks::<{ 4 * $bytes }>();
                        let Some(vectors) = parts.get(part) else { continue };
                        let (vectors, _) = vectors.as_chunks::<$bytes>();
                        let mut weights = [$zero(); 4];
                        for (weights, bytes) in weights.iter_mut().zip(vectors) {
                            // SAFETY: it reads exactly the bytes of the reference.
                            *weights = unsafe { $load(bytes.as_ptr().cast()) };
                        }
                        for (sums, level) in sums.iter_mut().zip(levels) {
                            let level = $set(*level);
                            for (sum, weights) in sums.iter_mut().zip(weights) {
                                *sum = $dot(*sum, weights, level);
                            }
                        }
                    }
                    for (found, sums) in found.iter_mut().zip(sums) {
                        let (parts, _) = found.as_chunks_mut::<$bytes>();
                        let Some(part) = parts.get_mut(part) else { continue };
                        let (vectors, _) = part.as_chunks_mut::<{ $bytes / 4 }>();
                        for (vector, sum) in vectors.iter_mut().zip(sums) {
                            // SAFETY: it writes exactly the numbers of the reference.
                            unsafe { $store(vector.as_mut_ptr().cast(), sum) };
                        }
                    }
                }
                found
            }
        };
    }

    kernel!(
        vnni512,
        "avx512f,avx512vnni",
        6,
        64,
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        _mm512_dpbusd_epi32
    );
    kernel!(
        vnni256,
        "avx2,avxvnni",
        2,
        32,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi32,
        _mm256_dpbusd_avx_epi32
    );
    /// Rows of a block of `avx2`; the sums of two vectors per row fit the registers.
    const AVX2_ROWS: usize = 3;

    /// `dpbusd` by 16-bit multiplications, in which no sum of two products saturates.
    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(
        levels: &[[[i32; 2]; AVX2_ROWS]],
        packed: &Packed,
    ) -> [[i32; TILE]; AVX2_ROWS] {
        let mut found = [[0; TILE]; AVX2_ROWS];
        for part in 0..TILE / 16 {
            let mut sums = [[_mm256_setzero_si256(); 2]; AVX2_ROWS];
            for (levels, packed) in levels.iter().zip(packed) {
                let Some(bytes) = packed.as_chunks::<64>().0.get(part) else { continue };
                let mut weights = [_mm256_setzero_si256(); 2];
                for (weights, bytes) in weights.iter_mut().zip(bytes.as_chunks::<32>().0) {
                    // SAFETY: it reads exactly the bytes of the reference.
                    *weights = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
                }
                let even = weights.map(|w| _mm256_and_si256(w, _mm256_set1_epi16(255)));
                let odd = weights.map(|w| _mm256_srli_epi16::<8>(w));
                for (sums, [even_levels, odd_levels]) in sums.iter_mut().zip(levels) {
                    let (even_levels, odd_levels) =
                        (_mm256_set1_epi32(*even_levels), _mm256_set1_epi32(*odd_levels));
                    for ((sum, even), odd) in sums.iter_mut().zip(even).zip(odd) {
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(even, even_levels));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(odd, odd_levels));
                    }
                }
            }
            for (found, sums) in found.iter_mut().zip(sums) {
                let Some(part) = found.as_chunks_mut::<16>().0.get_mut(part) else { continue };
                for (vector, sum) in part.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
                    // SAFETY: it writes exactly the numbers of the reference.
                    unsafe { _mm256_storeu_si256(vector.as_mut_ptr().cast(), sum) };
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_kernel_equals_the_definition(
            rows in 0_usize..15,
            groups in 1_usize..9,
            tiles in 1_usize..4,
            seed in any::<u64>(),
        ) {
            let (inputs, outputs) = (groups * GROUP, tiles * TILE);
            let mut state = seed | 1;
            let mut byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                // Sums saturate at the ends of the range.
                match state >> 60 { 0..4 => 0, 4..8 => 255, _ => (state >> 40) as u8 }
            };
            let weights: Vec<u8> = (0..inputs * outputs).map(|_| byte()).collect();
            let levels: Vec<i8> = (0..rows * inputs).map(|_| byte().wrapping_add(128).cast_signed()).collect();
            let mut expected = vec![0; rows * outputs];
            for row in 0..rows {
                for column in 0..outputs {
                    for input in 0..inputs {
                        expected[row * outputs + column] += i32::from(levels[row * inputs + input])
                            * (i32::from(weights[input * outputs + column].cast_signed()) + 128);
                    }
                }
            }
            for kernel in Kernel::available() {
                let weights = Weights::new(weights.clone().into(), inputs, outputs);
                // The second product keeps the packed weights, and the third uses them.
                for _ in 0..3 {
                    let mut found = vec![0; rows * outputs];
                    multiply(kernel, &levels, &weights, |row, column, tile| {
                        for (place, tile) in tile.iter().enumerate() {
                            let start = (row + place) * outputs + column;
                            found[start..start + TILE].copy_from_slice(tile);
                        }
                    });
                    prop_assert_eq!(&found, &expected, "{:?}", kernel);
                }
            }
        }
    }
}
