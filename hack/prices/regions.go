// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// survey is an older record of a cloud's prices in the regions that its provider omits. If a machine type's price in
// the reference region has changed since, it may have changed everywhere. Then none of the survey's prices for the type
// counts.
type survey struct {
	pin
	reference string
}

// awsSurvey returns the record of AWS's price list by instances.vantage.sh (formerly ec2instances.info). Its data is
// under the MIT licence.
func awsSurvey() survey {
	return survey{reference: "us-east-1", pin: pin{
		module: "github.com/cristim/ec2-instances-info", version: "v0.0.0-20250528091325-32acf84f42eb",
		sum: "h1:exJ9FsMTbotSG5xgDHmFJE84gV3MZ4JRpR8nhbgJz/k=", records: []string{"data/instances.json"},
	}}
}

// read reads the survey's record.
func (s survey) read(dir string) (prices, error) {
	out := prices{}
	for _, record := range s.records {
		if err := out.addInstances(filepath.Join(dir, filepath.FromSlash(record))); err != nil {
			return nil, fmt.Errorf("%s: %w", record, err)
		}
	}
	return out, nil
}

// addInstances adds the on-demand prices of Linux machines from a list of machine types. It reads one entry at a time,
// because the list is long.
func (p prices) addInstances(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	list := json.NewDecoder(file)
	if _, err := list.Token(); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	for list.More() {
		var machine struct {
			Name    string                     `json:"instance_type"`
			Pricing map[string]json.RawMessage `json:"pricing"`
		}
		if err := list.Decode(&machine); err != nil {
			return fmt.Errorf("decoding: %w", err)
		}
		for region, systems := range machine.Pricing {
			if isDollarRegion(region) {
				p.addSystems(machine.Name, region, systems)
			}
		}
	}
	if len(p) == 0 {
		return errors.New("it has no prices in a known form")
	}
	return nil
}

// isDollarRegion reports whether a name is a region's with prices in USD. Local zones and zones of telephone networks
// are not regions.
func isDollarRegion(name string) bool {
	return regexp.MustCompile(`^[a-z]{2}(-gov)?-[a-z]+-\d+$`).MatchString(name) && name[:3] != "cn-"
}

// addSystems adds the price of Linux, if there is one.
func (p prices) addSystems(machine, region string, systems json.RawMessage) {
	var priced struct {
		Linux struct {
			OnDemand string `json:"ondemand"`
		} `json:"linux"`
	}
	if json.Unmarshal(systems, &priced) != nil {
		return // entries of other operating systems have other forms
	}
	if price, err := strconv.ParseFloat(priced.Linux.OnDemand, 64); err == nil && price > 0 {
		p.put(machine, region, price)
	}
}

// addSurvey adds the survey's prices in regions that a table lacks, for machine types whose price in the reference
// region has not changed.
func (t *table) addSurvey(surveyed prices, reference string) {
	for _, machine := range sorted(t.onDemand) {
		now, known := t.onDemand[machine][reference]
		if then, was := surveyed[machine][reference]; !known || !was || round(then) != round(now) {
			continue
		}
		for region, price := range surveyed[machine] {
			if _, has := t.onDemand[machine][region]; !has {
				t.onDemand.put(machine, region, price)
			}
		}
	}
}
