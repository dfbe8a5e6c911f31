// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	gib                = 1 << 30
	defaultUtilization = 0.92
	defaultGPUGiB      = 80
	// reserveGiB is the invented GPU's memory in use besides weights and cache.
	reserveGiB = 2
	blockSize  = 16
)

// Memory is the start-up log's figures for one GPU.
type Memory struct {
	WeightsGiB, CacheGiB float64
	// CacheTokens of one replica, and Blocks of them.
	CacheTokens, Blocks int
	// Concurrency is how many requests of the greatest length fit.
	Concurrency float64
}

// checkDevices counts the container's GPUs: a device plugin sets NVIDIA_VISIBLE_DEVICES, and CUDA_VISIBLE_DEVICES may
// leave fewer.
func (s *Setup) checkDevices(env Environment) error {
	s.GPUs = visible(env)
	need, local := s.LocalGPUs(), s.Tensor*s.Pipeline/s.Nodes
	switch {
	case len(s.GPUs) == 0:
		return fail("RuntimeError", "Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` "+
			"to turn on verbose logging to help debug the issue.")
	case need <= len(s.GPUs):
		return nil
	case s.Nodes > 1:
		return fail("AssertionError", fmt.Sprintf("local_world_size (%d) must be less than or equal to the number of visible devices (%d).",
			local, len(s.GPUs)))
	case local > len(s.GPUs):
		return fail("ValueError", fmt.Sprintf("World size (%d) is larger than the number of available GPUs (%d) in this node.",
			local, len(s.GPUs)))
	}
	return fail("RuntimeError", fmt.Sprintf("Error setting CUDA_VISIBLE_DEVICES: local range: [%d, %d) base value: %q",
		need-local, need, strings.Join(s.GPUs, ",")))
}

func visible(env Environment) []string {
	var gpus []string
	switch text := env.Variables["NVIDIA_VISIBLE_DEVICES"]; text {
	case "", "void", "none":
		return nil
	case "all":
		gpus = env.Devices
	default:
		gpus = strings.Split(text, ",")
	}
	if cuda, set := env.Variables["CUDA_VISIBLE_DEVICES"]; set {
		wanted := strings.Split(cuda, ",")
		gpus = slices.DeleteFunc(slices.Clone(gpus), func(gpu string) bool {
			return !slices.Contains(wanted, gpu) && !slices.Contains(wanted, strconv.Itoa(slices.Index(gpus, gpu)))
		})
	}
	return gpus
}

// computeMemory cuts weights and cache evenly, and refuses them if they do not fit.
func (s *Setup) computeMemory(env Environment) error {
	s.GPUGiB = defaultGPUGiB
	if text := env.Variables["VLLMSIM_GPU_GIB"]; text != "" {
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || number <= 0 {
			return fail("ValueError", "vllmsim: VLLMSIM_GPU_GIB is "+text+", not a number of GiB")
		}
		s.GPUGiB = number
	}
	m := &s.Memory
	m.WeightsGiB = float64(s.Model.WeightBytes) / gib / float64(s.Tensor*s.Pipeline)
	if m.WeightsGiB > s.GPUGiB {
		return fail("torch.OutOfMemoryError", fmt.Sprintf("CUDA out of memory. Tried to allocate %.2f GiB. "+
			"GPU 0 has a total capacity of %.2f GiB of which 0 bytes is free.", m.WeightsGiB, s.GPUGiB))
	}
	m.CacheGiB = s.GPUGiB*s.Utilization - m.WeightsGiB - reserveGiB
	if m.CacheGiB <= 0 {
		return fail("ValueError", "No available memory for the cache blocks. "+
			"Try increasing `gpu_memory_utilization` when initializing the engine.")
	}
	perToken := s.tokenBytes()
	m.Blocks = int(m.CacheGiB * gib / perToken / blockSize)
	m.CacheTokens = m.Blocks * blockSize
	if s.MaxLen > m.CacheTokens {
		if s.Args.Int("max-model-len", -1) >= 0 || !s.Args.Has("max-model-len") {
			return fail("ValueError", fmt.Sprintf("To serve at least one request with the models's max seq len (%d), "+
				"(%.2f GiB KV cache is needed, which is larger than the available KV cache memory (%.2f GiB). "+
				"Based on the available memory, the estimated maximum model length is %d. "+
				"Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
				s.MaxLen, float64(s.MaxLen)*perToken/gib, m.CacheGiB, m.CacheTokens))
		}
		// auto
		s.MaxLen = m.CacheTokens
	}
	m.Concurrency = float64(m.CacheTokens) / float64(max(s.MaxLen, 1))
	return nil
}

// tokenBytes is the cache of one token on one GPU.
func (s *Setup) tokenBytes() float64 {
	c := s.Model.Config
	bytes := 2.0
	if strings.HasPrefix(s.Args.Text("kv-cache-dtype", "auto"), "fp8") {
		bytes = 1
	}
	heads := max(1, c.KVHeads/s.Tensor)
	layers := (c.Layers + s.Pipeline - 1) / s.Pipeline
	return 2 * float64(heads*c.HeadDim*layers) * bytes
}
