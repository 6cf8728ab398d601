# SPDX-License-Identifier: Apache-2.0
# setting.sh - what the scripts of this folder share: edit it, or set these
# variables in front of a script

# A model folder, or a name in the local cache of the Hugging Face hub, which
# `hf download` fills where there is a network.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
# Conversations, one a line, with the key "messages".
TALKS=${TALKS:-talks.jsonl}
# Everything is written into this folder, which all nodes have.
WORK=${WORK:-$PWD/fine-tuning}
NODES=${NODES:-1} TASKS=${TASKS:-4} CPUS=${CPUS:-8} TP=${TP:-auto} PP=${PP:-auto}
SEQ=${SEQ:-2048} BATCH=${BATCH:-64} STEPS=${STEPS:-1000}
# The program in a container: MERAK="apptainer exec --nv merak.sif merak".
# Where srun starts containers itself, as pyxis and CSCS's Container Engine do,
# it stays "merak", and SRUN has the option for that, such as
# SRUN="--environment=merak".
MERAK=${MERAK:-merak}
SRUN=${SRUN-}

# Words of a container's command are separate words.
read -ra merak <<<"$MERAK"
read -ra srun <<<"srun $SRUN"
mkdir -p "$WORK"
