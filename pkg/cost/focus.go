// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// producer is the value of the columns for the provider: the ledger has list prices, and no data from a cloud account.
const producer = "Modelberth"

// focusRow is one row, by the names of the columns.
type focusRow map[string]string

// focusColumns returns the columns of FOCUS 1.3 for cost and usage that other implementations write, and then our own
// with the prefix x_. FOCUS 1.3 deprecates ProviderName and PublisherName, which others still write.
func focusColumns() []string {
	return []string{
		"BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
		"ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
		"ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "HostProviderName",
		"InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName",
		"PublisherName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceProviderName",
		"SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags",
		"x_OutputTokens", "x_PriceSource", "x_PromptTokens", "x_State", "x_UnsureHours",
	}
}

// WriteFOCUS writes charges as the CSV of FOCUS 1.3, with one row for each account, period and state. It leaves out
// charges older than the kept months, because they have no period, and returns their number.
func WriteFOCUS(w io.Writer, charges []Charge) (omitted int, err error) {
	out := csv.NewWriter(w)
	columns := focusColumns()
	if err := out.Write(columns); err != nil {
		return 0, fmt.Errorf("writing CSV: %w", err)
	}
	for i := range charges {
		c := &charges[i]
		if c.Period == "" {
			omitted++
			continue
		}
		for n, row := range focusRows(c) {
			if n == 0 { // tokens belong to the account, so only one row has them
				row["x_PromptTokens"], row["x_OutputTokens"] = whole(c.Cells.Prompt), whole(c.Cells.Output)
			}
			values := make([]string, len(columns))
			for at, column := range columns {
				values[at] = row[column]
			}
			if err := out.Write(values); err != nil {
				return omitted, fmt.Errorf("writing CSV: %w", err)
			}
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return omitted, fmt.Errorf("writing CSV: %w", err)
	}
	return omitted, nil
}

// focusRows returns the rows of a charge: one for each state with time, or a single one if there are only tokens.
func focusRows(c *Charge) []focusRow {
	var out []focusRow
	unsure := c.Cells.Unsure
	for _, state := range slices.Backward(States()) { // the ledger does not keep the state of unsure time: usually a later one
		amount := c.Cells.Of(state)
		if amount.Millis == 0 {
			continue
		}
		row, part := focusRowOf(c, state, amount), min(unsure, amount.Millis)
		unsure -= part
		row["x_UnsureHours"] = decimal(Amount{Millis: part}.Hours())
		out = append(out, row)
	}
	slices.Reverse(out)
	if len(out) == 0 {
		out = append(out, focusRowOf(c, Serving, Amount{}))
	}
	return out
}

func focusRowOf(c *Charge, state State, amount Amount) focusRow {
	begin, end, _ := Period(c.Period)
	month := floor(begin, monthLabel)
	cost, hours := decimal(amount.USD()), decimal(amount.Hours())
	row := focusRow{
		"BilledCost": cost, "ContractedCost": cost, "EffectiveCost": cost, "ListCost": cost,
		"BillingAccountId": strings.ToLower(producer), "BillingAccountName": producer, "BillingCurrency": "USD",
		"BillingPeriodStart": instant(month), "BillingPeriodEnd": instant(next(month, monthLabel)),
		"ChargePeriodStart": instant(begin), "ChargePeriodEnd": instant(end),
		"ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based",
		"ChargeDescription": fmt.Sprintf("%s, %s, for Workspace %s", cmp.Or(c.InstanceType, "machines"), state, c.Workspace),
		"ConsumedQuantity":  hours, "ConsumedUnit": "Hours",
		"HostProviderName": producer, "InvoiceIssuerName": producer, "ProviderName": producer, "PublisherName": producer,
		"ServiceProviderName": producer, "ServiceCategory": "AI and Machine Learning", "ServiceName": "Model serving",
		"ResourceId": c.Namespace + "/" + c.Workspace, "ResourceName": c.Workspace, "ResourceType": "Workspace",
		"SkuId": c.InstanceType, "SubAccountId": c.Namespace, "SubAccountName": c.Namespace, "Tags": c.tags(),
		"x_PriceSource": c.Source, "x_State": state.String(),
	}
	if c.Price >= 0 && c.InstanceType != "" {
		price := decimal(float64(c.Price) / 1e6)
		row["ListUnitPrice"], row["ContractedUnitPrice"] = price, price
		row["PricingCategory"], row["PricingQuantity"], row["PricingUnit"] = c.pricing(), hours, "Hours"
		row["SkuPriceId"] = c.InstanceType + "/" + c.CapacityType + "/" + whole(c.Price)
	}
	return row
}

// pricing returns the pricing category of FOCUS for the capacity type.
func (k *Key) pricing() string {
	switch k.CapacityType {
	case "spot":
		return "Dynamic"
	case "reserved":
		return "Committed"
	case "on-demand":
		return "Standard"
	default:
		return "Other"
	}
}

// tags returns the labels as a JSON object; empty if there are none.
func (k *Key) tags() string {
	if k.Labels == "" {
		return ""
	}
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(k.Labels, ",") {
		key, value, _ := strings.Cut(pair, "=")
		pairs[key] = value
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		name, err := json.Marshal(key)
		value, errValue := json.Marshal(pairs[key])
		if err == nil && errValue == nil {
			out = append(out, string(name)+":"+string(value))
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func decimal(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

func whole(value int64) string { return strconv.FormatInt(value, 10) }
