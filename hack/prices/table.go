// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// gcpRecord is the file with the prices of the GCP provider.
const gcpRecord = "pkg/providers/pricing/initial-prices.json of github.com/cloudpilot-ai/karpenter-provider-gcp"

// table is one cloud's prices in USD per hour.
type table struct {
	// date of the record, year-month-day.
	date           string
	onDemand, spot prices
	// hasSpot is set if the source records spot prices.
	hasSpot bool
}

// prices are in USD per hour, by machine type and region.
type prices map[string]map[string]float64

// put adds a price.
func (p prices) put(machine, region string, price float64) {
	if p[machine] == nil {
		p[machine] = map[string]float64{}
	}
	p[machine][region] = price
}

// readGo reads a generated Go file: maps from regions to maps from machine types to prices, written as
// one literal (AWS) or as one assignment for each region (Azure).
func readGo(path string) (table, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return table{}, fmt.Errorf("parsing: %w", err)
	}
	t := table{onDemand: prices{}}
	if t.date, err = generationDate(file); err != nil {
		return table{}, err
	}
	var bad error
	ast.Inspect(file, func(n ast.Node) bool {
		region, entries := regionOf(n)
		if entries == nil || bad != nil {
			return bad == nil
		}
		bad = t.onDemand.addRegion(region, entries)
		return false
	})
	if bad == nil && len(t.onDemand) == 0 {
		bad = errors.New("it has no prices in a known form")
	}
	return t, bad
}

// regionOf returns the region and the literal with its prices if a node has one of the two forms.
func regionOf(n ast.Node) (string, *ast.CompositeLit) {
	switch n := n.(type) {
	case *ast.KeyValueExpr: // "us-east-1": {…}
		entries, _ := n.Value.(*ast.CompositeLit)
		region, ok := text(n.Key)
		if ok && entries != nil {
			return region, entries
		}
	case *ast.AssignStmt: // table["eastus"] = map[string]float64{…}
		if len(n.Lhs) != 1 || len(n.Rhs) != 1 {
			return "", nil
		}
		index, _ := n.Lhs[0].(*ast.IndexExpr)
		entries, _ := n.Rhs[0].(*ast.CompositeLit)
		if index == nil || entries == nil {
			return "", nil
		}
		if region, ok := text(index.Index); ok {
			return region, entries
		}
	}
	return "", nil
}

// addRegion adds the prices of one region.
func (p prices) addRegion(region string, entries *ast.CompositeLit) error {
	for _, e := range entries.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return fmt.Errorf("region %q: an entry has no machine type", region)
		}
		machine, named := text(pair.Key)
		number, isNumber := pair.Value.(*ast.BasicLit)
		if !named || !isNumber {
			return fmt.Errorf("region %q: an entry is not a machine type and a number", region)
		}
		price, err := strconv.ParseFloat(number.Value, 64)
		if err != nil {
			return fmt.Errorf("region %q: %s: %s is no price", region, machine, number.Value)
		}
		if price > 0 { // Azure's list has 0 for machine types that it does not sell yet
			p.put(machine, region, price)
		}
	}
	return nil
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

// generationDate returns the date of a comment "generated at 2026-06-18T03:43:41Z".
func generationDate(file *ast.File) (string, error) {
	pattern := regexp.MustCompile(`generated at (\d{4}-\d{2}-\d{2})T`)
	for _, group := range file.Comments {
		if found := pattern.FindStringSubmatch(group.Text()); found != nil {
			return found[1], nil
		}
	}
	return "", errors.New(`it has no comment "generated at" with a date`)
}

// readGCP reads the record of the GCP provider: prices by region, on demand or spot, and machine type.
func readGCP(path, date string) (table, error) {
	if ok, err := regexp.MatchString(`^\d{4}-\d{2}-\d{2}$`, date); err != nil || !ok {
		return table{}, fmt.Errorf("-gcp-date %q is not a date such as 2026-08-03", date)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return table{}, fmt.Errorf("reading GCP's prices: %w", err)
	}
	var record struct {
		Prices map[string]struct {
			OnDemand map[string]float64 `json:"on_demand"`
			Spot     map[string]float64 `json:"spot"`
		} `json:"prices"`
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return table{}, fmt.Errorf("decoding GCP's prices: %w", err)
	}
	if len(record.Prices) == 0 {
		return table{}, fmt.Errorf("%s holds no prices: it is not %s", path, gcpRecord)
	}
	t := table{date: date, onDemand: prices{}, spot: prices{}, hasSpot: true}
	for region, kinds := range record.Prices {
		for machine, price := range kinds.OnDemand {
			t.onDemand.put(machine, region, price)
		}
		for machine, price := range kinds.Spot {
			t.spot.put(machine, region, price)
		}
	}
	return t, nil
}

// sorted returns the keys of a map in order.
func sorted[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}
