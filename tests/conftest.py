"""For every test: what this machine's processor must not be asked for."""

import os

# Some virtual machines advertise Intel's AMX and forbid its use. There torch's own bf16 layers end the process with an
# illegal instruction (docs/troubleshooting.md); what is tested here needs none of it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
