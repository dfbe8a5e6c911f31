// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"fmt"
	"path"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// Files are the files of a repository that describe its model. Only Config is required.
type Files struct {
	// Config is config.json, and Quantization is hf_quant_config.json.
	Config, Quantization []byte
	// Tensors are from model.safetensors.index.json.
	Tensors Tensors
}

// Facts are what planning needs to know of a model.
type Facts struct {
	// Architecture is the model's class, Type the language model's model_type.
	Architecture, Type string
	Shape              model.Shape
	// Context is vLLM's default for the longest sequence, in tokens.
	Context int
	// Quantization is the catalogue's name for the format of the weights: bf16, fp8, awq, …
	Quantization string
	// WeightBytes is the size of all tensors; 0 if no index has it.
	WeightBytes int64
	// IdleBytes is the part of WeightBytes that is fetched but never loaded.
	IdleBytes int64
	// EstimatedBytes is the estimated size of weights in a variant of the catalogue's format, if no index has the size;
	// else 0.
	EstimatedBytes int64
	// RemoteCode: an engine has to run the repository's code.
	RemoteCode bool
	// Notes are sentences about assumptions and omissions.
	Notes []string
}

// Parse reads a config.json alone.
func Parse(config []byte) (Facts, error) {
	return ParseFiles(Files{Config: config})
}

// ParseFiles reads a config.json and the files next to it. Each error is one sentence: a *FieldError if the config is
// broken, an *UnsupportedError if its model cannot be planned for.
func ParseFiles(files Files) (Facts, error) {
	known, err := loadTable()
	if err != nil {
		return Facts{}, err
	}
	return known.parse(files)
}

// Model returns the model with a repository's weights at a revision. The artifact is native, because a user who names a
// repository chooses its precision.
func (f Facts) Model(repo, revision string) model.Model {
	basis := model.BytesExact
	if f.WeightBytes == 0 {
		basis = model.BytesEstimated
	}
	return model.Model{
		Name: strings.ToLower(path.Base(repo)), HubID: repo, Shape: f.Shape.Clone(), Context: f.Context, RemoteCode: f.RemoteCode,
		Artifacts: []model.Artifact{{
			Engine: "vllm", Repo: repo, Revision: revision, Quantization: f.Quantization, Native: true,
			WeightBytes: max(f.WeightBytes, f.EstimatedBytes), WeightBasis: basis, IdleBytes: f.IdleBytes,
		}},
	}
}

func (t table) parse(files Files) (Facts, error) {
	top, err := decodeObject("config.json", files.Config)
	if err != nil {
		return Facts{}, err
	}
	r := &reader{file: "config.json", levels: levelsOf(top)}
	facts := Facts{Type: modelType(r)}
	// Engines look only at the outer architecture.
	if names := (&reader{levels: []level{{object: top}}}).texts("architectures"); len(names) > 0 {
		facts.Architecture = names[0]
	}
	arch, err := t.supported(facts, top)
	if err != nil {
		return Facts{}, err
	}
	if r.defaults, err = defaultsOf(arch); err != nil {
		return Facts{}, err
	}
	p := &parser{reader: r, arch: arch}
	if facts.RemoteCode = arch.RemoteCode; facts.RemoteCode {
		p.note("the engine must run the repository's code for its tokenizer")
	}
	facts.Context = p.context()
	facts.Shape = p.shape(facts.Context)
	facts.Shape.ExtraParams, facts.Shape.Vision = p.vision(t, top, facts.Shape.Hidden)
	if r.err != nil {
		return Facts{}, r.err
	}
	if facts.Quantization, err = p.quantization(top, files.Quantization); err != nil {
		return Facts{}, err
	}
	p.weigh(&facts, files.Tensors)
	facts.Notes = p.notes
	return facts, nil
}

// loadedBytes is the size of an unquantised parameter in the engine.
const loadedBytes = 2

// parser reads one config.
type parser struct {
	*reader
	arch  architecture
	notes []string
	// storedBytes is the size of a parameter in the file if the engine loads another size; else 0. bytesPerParam is the
	// size of a quantised parameter if it differs from the format's; else 0.
	storedBytes   int64
	bytesPerParam float64
	// expertsOnly: only the experts of a mixture are quantised.
	expertsOnly bool
}

func (p *parser) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// weigh sets the bytes of the weights: from the index if it has them, or else estimated from the shape.
func (p *parser) weigh(facts *Facts, tensors Tensors) {
	facts.WeightBytes, facts.IdleBytes = tensors.Bytes, tensors.idle(facts.Shape, max(p.storedBytes, loadedBytes))
	if p.bytesPerParam > 0 && facts.WeightBytes == 0 {
		facts.EstimatedBytes = groupedBytes(facts.Shape, p.bytesPerParam)
	}
	if p.expertsOnly && facts.Shape.MoE != nil && facts.WeightBytes == 0 {
		facts.EstimatedBytes = expertBytes(facts.Shape, nvfp4Bytes)
		p.note("attention weights are assumed to have 16 bits, as in other mixture-of-experts models in this format")
	}
	if facts.IdleBytes > 0 {
		p.note("about %.1f GiB of the weights are stored and never loaded: layers for speculative decoding, or a second copy of the embedding",
			float64(facts.IdleBytes)/(1<<30))
	}
	if p.storedBytes > loadedBytes {
		// The part of the bytes that loading drops is still fetched.
		facts.IdleBytes += (facts.WeightBytes - facts.IdleBytes) * (p.storedBytes - loadedBytes) / p.storedBytes
	}
}

// levelsOf puts the language model's part of a multimodal config before the whole config.
func levelsOf(top object) []level {
	for _, key := range []string{"text_config", "llm_config", "language_config"} {
		if text := top.sub(key); text != nil {
			return []level{{key + ".", text}, {"", top}}
		}
	}
	if text := top.sub("thinker_config").sub("text_config"); text != nil {
		return []level{{"thinker_config.text_config.", text}, {"", top}}
	}
	return []level{{"", top}}
}

func modelType(r *reader) string {
	f, _ := r.find("model_type")
	return object{"model_type": f.raw}.text("model_type")
}

// supported returns the class of a config, or the reason why plans do not support it.
func (t table) supported(facts Facts, top object) (architecture, error) {
	unsupported := &UnsupportedError{Architecture: facts.Architecture, Type: facts.Type}
	switch {
	case !isNull(top["_diffusers_version"]):
		unsupported.Architecture, unsupported.Type = top.text("_class_name"), "diffusers"
		unsupported.Reason = "is a diffusion model for images, not a language model"
		return architecture{}, unsupported
	case facts.Type == "":
		return architecture{}, &FieldError{File: "config.json", Field: "model_type", Must: "is missing"}
	case top.isTrue("is_encoder_decoder"):
		unsupported.Reason = "is an encoder-decoder model; plans support only decoder-only models"
		return architecture{}, unsupported
	}
	for _, kind := range []string{facts.Type, top.text("model_type")} {
		if reason, ok := t.refusal(kind); ok {
			unsupported.Reason = reason
			return architecture{}, unsupported
		}
	}
	for _, task := range []string{"ForSequenceClassification", "ForTokenClassification", "ForMaskedLM", "ForRewardModel"} {
		if strings.HasSuffix(facts.Architecture, task) {
			unsupported.Reason = "returns scores, not text"
			return architecture{}, unsupported
		}
	}
	arch, ok := t.architecture(facts.Type)
	if !ok {
		return architecture{}, unsupported
	}
	return arch, nil
}

// isTrue reports whether a key is the literal true.
func (o object) isTrue(key string) bool {
	return string(o[key]) == "true"
}
