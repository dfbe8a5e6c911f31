// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/model"
)

// modelsCommand is kubectl berth models.
type modelsCommand struct {
	catalogFlags
	output

	engine, quantization string
	context              int
	gated, served        bool
}

func newModels(w World) *cobra.Command {
	c := &modelsCommand{}
	cmd := &cobra.Command{
		Use:   "models [TEXT]",
		Short: "List the models of the catalogue",
		Long:  "List the models of the catalogue. With TEXT, list those with TEXT in their name, alias or Hugging Face id.",
		Example: `  kubectl berth models llama
  kubectl berth models --engine llamacpp
  kubectl berth models --gated=false --min-context 131072 -o wide`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, w, strings.Join(args, "")) },
	}
	f := cmd.Flags()
	f.StringVar(&c.engine, "engine", "", "only models with weights for this engine")
	f.StringVar(&c.quantization, "quantization", "", "only models with weights in this format, such as fp8")
	f.IntVar(&c.context, "min-context", 0, "only models with a context of at least this many tokens")
	f.BoolVar(&c.gated, "gated", false, "only models that need a token, or with --gated=false only models that do not")
	f.BoolVar(&c.served, "served", false, "only models whose weights an engine of this version can load")
	c.catalogFlags.bind(cmd, w)
	c.output.bind(cmd, true)
	return cmd
}

func (c *modelsCommand) run(cmd *cobra.Command, w World, name string) error {
	known, err := c.load()
	if err != nil {
		return err
	}
	if c.engine != "" {
		if err := oneOf("--engine", c.engine, engineNames(known)); err != nil {
			return err
		}
	}
	found := slices.DeleteFunc(known.Models(), func(m model.Model) bool {
		return !hasText(name, append([]string{m.Name, m.HubID}, m.Aliases...)) || m.Context < c.context ||
			(c.served && len(m.Artifacts) == 0) || (cmd.Flags().Changed("gated") && m.Gated != c.gated) || !c.hasWeights(&m)
	})
	entries := make([]modelEntry, 0, len(found))
	for i := range found {
		entries = append(entries, entryOf(&found[i]))
	}
	if c.forPrograms() {
		return c.data(w.Out, entries)
	}
	return table(w.Out, "", c.rows(entries))
}

// hasText reports whether a name contains a text. It ignores case.
func hasText(text string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(text))
	})
}

// hasWeights reports whether a model has weights for the selected engine and format.
func (c *modelsCommand) hasWeights(m *model.Model) bool {
	return c.engine == "" && c.quantization == "" || slices.ContainsFunc(m.Artifacts, func(a model.Artifact) bool {
		return (c.engine == "" || a.Engine == c.engine) && (c.quantization == "" || strings.EqualFold(a.Quantization, c.quantization))
	})
}

// modelEntry is a model as programs read it.
type modelEntry struct {
	Name             string         `json:"name"`
	HubID            string         `json:"hubId"`
	Aliases          []string       `json:"aliases,omitempty"`
	Parameters       int64          `json:"parameters,omitempty"`
	ActiveParameters int64          `json:"activeParameters,omitempty"`
	Context          int            `json:"context,omitempty"`
	KVBytesPerToken  int64          `json:"kvCacheBytesPerToken,omitempty"`
	Gated            bool           `json:"gated"`
	License          string         `json:"license,omitempty"`
	Weights          []weightsEntry `json:"weights,omitempty"`
	ToolParser       string         `json:"toolParser,omitempty"`
	ReasoningParser  string         `json:"reasoningParser,omitempty"`
	Needs            string         `json:"needs,omitempty"`
}

// weightsEntry is one form of a model's weights.
type weightsEntry struct {
	Engine       string  `json:"engine"`
	Quantization string  `json:"quantization"`
	Released     bool    `json:"released"`
	GiB          float64 `json:"giB"`
	Repo         string  `json:"repo"`
}

func entryOf(m *model.Model) modelEntry {
	out := modelEntry{
		Name: m.Name, HubID: m.HubID, Aliases: m.Aliases, Context: m.Context, Gated: m.Gated, License: m.License,
		ToolParser: m.ToolParser, ReasoningParser: m.ReasoningParser, Needs: m.Needs,
	}
	if !m.Shape.IsZero() {
		out.Parameters, out.ActiveParameters = m.Shape.Params(), m.Shape.ActiveParams()
		out.KVBytesPerToken = int64(m.Shape.KVBytes(2))
	}
	for i := range m.Artifacts {
		a := &m.Artifacts[i]
		out.Weights = append(out.Weights, weightsEntry{
			Engine: a.Engine, Quantization: a.Quantization, Released: a.Native, GiB: hundredths(float64(a.Bytes()) / gib), Repo: a.Repo,
		})
	}
	return out
}

// rows returns the rows of the table. The weights as released come first.
func (c *modelsCommand) rows(entries []modelEntry) [][]string {
	rows := [][]string{{"NAME", "PARAMS", "CONTEXT", "WEIGHTS", "FORMATS", "ENGINES", "GATED"}}
	if c.wide() {
		rows[0] = append(rows[0], "ACTIVE", "KV/TOKEN", "LICENCE", "HUB ID", "ALIASES")
	}
	for i := range entries {
		e := &entries[i]
		released, formats, engines := none, []string{}, []string{}
		for _, w := range e.Weights {
			if w.Released && released == none {
				released = fmt.Sprintf("%s %s GiB", w.Quantization, digits(w.GiB))
			}
			formats, engines = with(formats, w.Quantization), with(engines, w.Engine)
		}
		row := []string{
			e.Name, params(e.Parameters), tokens(e.Context), released, text(strings.Join(formats, ",")),
			text(strings.Join(engines, ",")), yesNo(e.Gated),
		}
		if c.wide() {
			row = append(row, params(e.ActiveParameters), kibs(e.KVBytesPerToken), text(e.License), e.HubID,
				text(strings.Join(e.Aliases, ",")))
		}
		rows = append(rows, row)
	}
	return rows
}

// with adds a name if it is missing.
func with(names []string, name string) []string {
	if slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

func kibs(bytes int64) string {
	if bytes == 0 {
		return none
	}
	return digits(float64(bytes)/1024) + " KiB"
}
