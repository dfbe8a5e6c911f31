// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/test/vllmsim/args"
	"github.com/modelberth/modelberth/test/vllmsim/launch"
)

// model writes a model of two layers, with four heads of which two are for keys and values. Tests change the
// files; nil removes one.
func model(t *testing.T, change map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{
		"config.json": []byte(`{"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
			"num_key_value_heads":2,"intermediate_size":384,"vocab_size":320,"max_position_embeddings":8192}`),
		"tokenizer.json":                 []byte(`{"model":{"vocab":{"▁calm":1,"▁tide":2}}}`),
		"a.safetensors":                  shard(t, "one", 1024),
		"b.safetensors":                  shard(t, "two", 512),
		"adapter/readme.txt":             nil,
		"model.safetensors.index.json":   []byte(`{"weight_map":{"one":"a.safetensors","two":"b.safetensors"}}`),
		"lora/adapter_config.json":       []byte(`{"r":32}`),
		"lora/adapter_model.safetensors": shard(t, "lora", 8),
	}
	maps.Copy(files, change)
	for name, data := range files {
		if data == nil {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func shard(t *testing.T, tensor string, size int) []byte {
	t.Helper()
	header, err := json.Marshal(map[string]any{tensor: map[string]any{"dtype": "F16", "shape": []int{size / 2}, "data_offsets": []int{0, size}}})
	if err != nil {
		t.Fatal(err)
	}
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(data, header...), make([]byte, size)...)
}

// start checks a command line; DIR stands for the model's directory.
func start(t *testing.T, dir, line string, env launch.Environment) (*launch.Setup, error) {
	t.Helper()
	parsed, err := args.Parse(strings.Fields(strings.ReplaceAll(line, "DIR", dir)))
	if err != nil {
		t.Fatal(err)
	}
	setup, err := launch.Check(parsed, env)
	if err != nil {
		return nil, err
	}
	err = setup.Load(env)
	return setup, err
}

// machine has GPUs and nothing else out of the ordinary.
func machine(gpus string, more ...string) launch.Environment {
	variables := map[string]string{"NVIDIA_VISIBLE_DEVICES": gpus, "USER": "vllm"}
	for i := 0; i+1 < len(more); i += 2 {
		variables[more[i]] = more[i+1]
	}
	return launch.Environment{Variables: variables, UserID: 2000, SharedBytes: 1 << 30}
}

func TestFigures(t *testing.T) {
	dir := model(t, nil)
	for _, tc := range []struct {
		reason, line string
		env          launch.Environment
		want         launch.Memory
	}{
		{
			// 10 GiB × 0.92 − 2 GiB of 2 × 2 heads × 16 × 2 layers × 2 bytes.
			"one GPU", "DIR", machine("GPU-0", "VLLMSIM_GPU_GIB", "10"),
			launch.Memory{WeightsGiB: 1536.0 / (1 << 30), CacheGiB: 7.199998569488525, CacheTokens: 30198976, Blocks: 1887436, Concurrency: 3686.3984375},
		},
		{
			"cut by tensors and layers, in 8 bits", "DIR -tp 2 -pp 2 --kv-cache-dtype fp8 --max-model-len 4096 --gpu-memory-utilization 0.5",
			machine("GPU-0,GPU-1,GPU-2,GPU-3", "VLLMSIM_GPU_GIB", "10"),
			launch.Memory{WeightsGiB: 384.0 / (1 << 30), CacheGiB: 2.999999642372131, CacheTokens: 100663280, Blocks: 6291455, Concurrency: 24575.99609375},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			setup, err := start(t, dir, tc.line, tc.env)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, setup.Memory, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStarts(t *testing.T) {
	for _, tc := range []struct {
		reason, line string
		env          launch.Environment
	}{
		{"one of two machines", "DIR -tp 2 --nnodes 2 --node-rank 1 --master-addr a --headless", machine("GPU-7")},
		{"replicas", "DIR -dp 2 -tp 2", machine("GPU-0,GPU-1,GPU-2,GPU-3")},
		{"more GPUs than heads for keys and values", "DIR -tp 4", machine("0,1,2,3")},
		{"layers by hand", "DIR -pp 2", machine("0,1", "VLLM_PP_LAYER_PARTITION", "1,1")},
		{"an adapter", "DIR --enable-lora --max-lora-rank 32 --lora-modules x=DIR/lora", machine("0")},
		{"limits of media", "DIR --limit-mm-per-prompt {\"image\":{\"count\":2,\"width\":512,\"height\":512},\"video\":0}", machine("0")},
		{"the context that fits", "DIR --max-model-len auto --gpu-memory-utilization 0.5", machine("0", "VLLMSIM_GPU_GIB", "4.001")},
		{"a longer context by consent", "DIR --max-model-len 16k", machine("0", "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if _, err := start(t, model(t, nil), tc.line, tc.env); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	cut := shard(t, "two", 512)
	for _, tc := range []struct {
		reason, line string
		env          launch.Environment
		change       map[string][]byte
		want         string
	}{
		{"tools without a parser", "DIR --enable-auto-tool-choice", machine("0"), nil, "TypeError: Error: --enable-auto-tool-choice requires"},
		{"outputs without requests", "DIR --enable-log-outputs", machine("0"), nil, "TypeError: Error: --enable-log-outputs requires"},
		{"API servers where nobody is served", "DIR --headless --api-server-count 2", machine("0"), nil, "ValueError: --api-server-count=2 cannot be used"},
		{"a limit that is no number", "DIR --limit-mm-per-prompt {\"image\":\"2\"}", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for MultiModalConfig\nlimit_per_prompt.image.count"},
		{"a limit below none", "DIR --limit-mm-per-prompt {\"video\":-1}", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for MultiModalConfig\nlimit_per_prompt.video.count"},
		{"a size that images lack", "DIR --limit-mm-per-prompt {\"image\":{\"num_frames\":2}}", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for MultiModalConfig\nlimit_per_prompt.image.num_frames"},
		{"limits in a list", "DIR --limit-mm-per-prompt [2]", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for MultiModalConfig\nlimit_per_prompt\n"},
		{"a misspelt key of events", "DIR --kv-events-config {\"end\":1}", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for KVEventsConfig\nend"},
		{"machines that do not divide the GPUs", "DIR -tp 2 --nnodes 4", machine("0"), nil, "ValueError: Invalid data-parallel launch options: `--nnodes 4`"},
		{"a rank that is too high", "DIR -tp 2 --nnodes 2 --node-rank 2", machine("0"), nil, "ValueError: Invalid data-parallel launch options: `--node-rank`"},
		{"a leader that serves nobody", "DIR -tp 2 --nnodes 2 --headless", machine("0"), nil, "ValueError: vllmsim: --headless on node rank 0"},
		{"a follower that serves", "DIR -tp 2 --nnodes 2 --node-rank 1 --master-addr a", machine("0"), nil, "ValueError: vllmsim: node rank 1 must have --headless"},
		{"heads that do not divide", "DIR -tp 3", machine("0,1,2"), nil, "ValueError: Total number of attention heads (4) must be divisible by tensor parallel size (3)."},
		{"more stages than layers", "DIR -pp 3", machine("0,1,2"), nil, "ValueError: 3 pipeline stages for 2 layers"},
		{"layers for other stages", "DIR -pp 2", machine("0,1", "VLLM_PP_LAYER_PARTITION", "1,1,0"), nil, "ValueError: len(partitions)=3 does not match pp_size=2."},
		{"layers that are too many", "DIR -pp 2", machine("0,1", "VLLM_PP_LAYER_PARTITION", "1,2"), nil, "ValueError: sum(partitions)=3 does not match"},
		{"a context that is too long", "DIR --max-model-len 8193", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, User-specified max_model_len (8193)"},
		{"a batch below its sequences", "DIR --max-num-seqs 9 --max-num-batched-tokens 8", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig"},
		{"more than all memory", "DIR --gpu-memory-utilization 1.1", machine("0"), nil, "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig"},
		{"no GPU", "DIR", machine(""), nil, "RuntimeError: Failed to infer device type"},
		{"too few GPUs", "DIR -tp 2", machine("0"), nil, "ValueError: World size (2) is larger than the number of available GPUs (1)"},
		{"too few GPUs for replicas", "DIR -dp 2", machine("0"), nil, "RuntimeError: Error setting CUDA_VISIBLE_DEVICES: local range: [1, 2)"},
		{"too few GPUs on one of two machines", "DIR -tp 4 --nnodes 2", machine("0"), nil, "AssertionError: local_world_size (2)"},
		{"too little memory for the cache", "DIR", machine("0", "VLLMSIM_GPU_GIB", "2"), nil, "ValueError: No available memory for the cache blocks."},
		{"too little for the context", "DIR", machine("0", "VLLMSIM_GPU_GIB", "2.174"), nil, "ValueError: To serve at least one request with the models's max seq len (8192)"},
		{"an address for a port", "DIR", machine("0", "VLLM_PORT", "tcp://10.0.0.1:80"), nil, "ValueError: VLLM_PORT 'tcp://10.0.0.1:80' appears to be a URI."},
		{"a user without a name", "DIR", machine("0", "USER", ""), nil, "KeyError: 'getpwuid(): uid not found: 2000'"},
		{"no configuration", "DIR", machine("0"), map[string][]byte{"config.json": nil}, "OSError: DIR does not appear to have a file named config.json."},
		{"no tokenizer", "DIR", machine("0"), map[string][]byte{"tokenizer.json": nil}, "OSError: Can't load tokenizer for 'DIR'."},
		{"a file that is missing", "DIR", machine("0"), map[string][]byte{"b.safetensors": nil}, "FileNotFoundError: No such file or directory: \"DIR/b.safetensors\""},
		{"a file that is cut off", "DIR", machine("0"), map[string][]byte{"b.safetensors": cut[:len(cut)-1]}, "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata"},
		{"a tensor that is missing", "DIR", machine("0"), map[string][]byte{"b.safetensors": shard(t, "three", 8)}, "ValueError: Following weights were not initialized from checkpoint: {'two'}"},
		{"no weights", "DIR", machine("0"), map[string][]byte{"model.safetensors.index.json": nil, "a.safetensors": nil, "b.safetensors": nil}, "RuntimeError: Cannot find any model weights with `DIR`"},
		{"an adapter that is not enabled", "DIR --lora-modules x=DIR/lora", machine("0"), nil, "RuntimeError: Loading lora x failed: LoRA is not enabled."},
		{
			"adapters at run time with several API servers", "DIR --enable-lora --api-server-count 2",
			machine("0", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True"), nil,
			"ValueError: VLLM_ALLOW_RUNTIME_LORA_UPDATING cannot be used with api_server_count > 1",
		},
		{"an adapter's rank", "DIR --enable-lora --lora-modules x=DIR/lora", machine("0"), nil, "ValueError: Loading lora x failed: LoRA rank 32 is greater than max_lora_rank 16."},
		{"an adapter that is not there", "DIR --enable-lora --lora-modules x=DIR/no", machine("0"), nil, "ValueError: Loading lora x failed: No adapter found for DIR/no"},
		{"what is not simulated", "DIR --grpc", machine("0"), nil, "NotImplementedError: vllmsim: --grpc is not simulated"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := model(t, tc.change)
			_, err := start(t, dir, tc.line, tc.env)
			if err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), dir, "DIR"), tc.want) {
				t.Errorf("error\n%v\nwant\n%s", err, tc.want)
			}
		})
	}
}

func TestSharedMemory(t *testing.T) {
	env := machine("0,1")
	env.SharedBytes = 64 << 20
	dir := model(t, nil)
	if _, err := start(t, dir, "DIR -tp 2", env); err == nil || !strings.Contains(err.Error(), "/dev/shm has 64 MiB") {
		t.Errorf("two GPUs with 64 MiB of shared memory: %v", err)
	}
	if _, err := start(t, dir, "DIR", env); err != nil {
		t.Errorf("one GPU needs no more: %v", err)
	}
}
