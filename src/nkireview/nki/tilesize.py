"""``nl.tile_size``: limits of the target of the current trace."""

from __future__ import annotations

import os

from nkireview.isa.release import Release
from nkireview.nki.spans import require
from nkireview.nki.trace import Trace, surroundings

TRANSPOSE_VARIABLE = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"  # nki/api/nki.language.tile_size.rst:36-42

OLD_SIZE_UNTIL = Release(0, 4)  # release notes 0.4: total_available_sbuf_size is deprecated


class TileSize:
    """The members of ``nl.tile_size``; a member that the release does not have yet is refused."""

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM."""
        return self._figure("pmax", "partitions")

    @property
    def psum_fmax(self) -> int:
        """float32 elements of a PSUM bank, a partition (older name)."""
        return self._figure("psum_fmax", "psum.bank_bytes") // 4

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements of a PSUM bank, a partition."""
        return self._figure("psum_bank_fmax", "psum.bank_bytes") // 4

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank, a partition."""
        return self._figure("psum_bank_fmax_bytes", "psum.bank_bytes")

    @property
    def psum_num_banks(self) -> int:
        """Usable banks of PSUM: one fewer where DMA transposes become transposes of the Tensor engine (v3 on)."""
        trace = self._trace("psum_num_banks")
        reserved = os.environ.get(TRANSPOSE_VARIABLE, "").lower() == "true"
        path = "psum.banks"
        if reserved and trace.hardware.generation != "v2":
            path = "psum.banks_beside_dma_transpose"
        return int(trace.hardware.value(path))

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free size of a stationary tile."""
        return self._figure("gemm_stationary_fmax", "limits.stationary_free_max")

    @property
    def gemm_moving_fmax(self) -> int:
        """Free size of a moving tile whose float32 result fills one PSUM bank."""
        return self._figure("gemm_moving_fmax", "psum.bank_bytes") // 4

    @property
    def bn_stats_fmax(self) -> int:
        """Free size of bn_stats."""
        return self._figure("bn_stats_fmax", "limits.bn_stats_free_max")

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses, bytes."""
        return self._figure("psum_min_align", "psum.min_align")

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses, bytes."""
        return self._figure("sbuf_min_align", "sbuf.min_align")

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions."""
        return self._figure("sbuf_size_bytes", "sbuf.bytes_per_partition") * self.pmax

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes of SBUF, a partition."""
        return self._figure("sbuf_fmax_bytes", "sbuf.usable_bytes_per_partition")

    @property
    def sbuf_fmax(self) -> int:
        """Usable float32 elements of SBUF, a partition."""
        return self._figure("sbuf_fmax", "sbuf.usable_bytes_per_partition") // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Usable bytes of SBUF, a partition (older name)."""
        trace = surroundings("nl.tile_size")
        if trace.release >= OLD_SIZE_UNTIL:
            trace.event(
                "deprecated",
                f"nl.tile_size.total_available_sbuf_size is deprecated since NKI {OLD_SIZE_UNTIL}: use "
                "nl.tile_size.sbuf_fmax_bytes",
            )
        return self._figure("total_available_sbuf_size", "sbuf.usable_bytes_per_partition")

    def _figure(self, member: str, path: str) -> int:
        return int(self._trace(member).hardware.value(path))

    def _trace(self, member: str) -> Trace:
        trace = surroundings("nl.tile_size")
        require("nki.language", f"tile_size.{member}", trace.release)
        return trace
