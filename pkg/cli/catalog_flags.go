// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// catalogFlags are the flags for the catalogue, the cloud and the region.
type catalogFlags struct {
	base     fs.FS
	overlays []string
	measured calibrations
	clouds   []string
	region   string
}

// bind declares --catalog.
func (f *catalogFlags) bind(cmd *cobra.Command, w World) {
	f.base = w.Presets
	cmd.Flags().StringArrayVar(&f.overlays, "catalog", nil,
		"directory with files that add to the catalogue or replace its entries; repeatable")
	// The only error is that the flag does not exist.
	_ = cmd.MarkFlagDirname("catalog")
	f.measured.bind(cmd)
}

// bindPlaces declares --cloud and --region.
func (f *catalogFlags) bindPlaces(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.clouds, "cloud", nil, "clouds to consider: azure, aws, gcp (default: all)")
	cmd.Flags().StringVar(&f.region, "region", "", "region of the prices (default: each cloud's reference region)")
	complete(cmd, "cloud", func() []string { return []string{"aws", "azure", "gcp"} })
	complete(cmd, "region", func() []string {
		c, err := f.load()
		if err != nil {
			return nil
		}
		return regions(c, f.clouds)
	})
}

// load returns the catalogue with all overlays.
func (f *catalogFlags) load() (*catalog.Catalog, error) {
	var overlays []fs.FS
	for _, dir := range f.overlays {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, usageError("--catalog: %q is not a directory: name a directory with catalogue files", dir)
		}
		overlays = append(overlays, os.DirFS(dir))
	}
	c, err := catalog.Load(f.base, overlays...)
	if err != nil {
		return nil, usageError("--catalog: %w", err)
	}
	return f.measured.added(c)
}

// place checks --cloud and --region, and returns the selected clouds; none means all.
func (f *catalogFlags) place(c *catalog.Catalog) ([]string, error) {
	all := clouds(c)
	for _, cloud := range f.clouds {
		if err := oneOf("--cloud", cloud, all); err != nil {
			return nil, err
		}
	}
	if f.region == "" {
		return f.clouds, nil
	}
	// A region belongs to one cloud. The other clouds have no prices for it.
	var out []string
	for _, cloud := range all {
		if (len(f.clouds) == 0 || slices.Contains(f.clouds, cloud)) && slices.Contains(regions(c, []string{cloud}), f.region) {
			out = append(out, cloud)
		}
	}
	if len(out) == 0 {
		return nil, usageError("--region: the catalogue has no prices for %q: use %s, or add its prices with --catalog",
			f.region, orList(near(f.region, regions(c, f.clouds))))
	}
	return out, nil
}

// clouds returns the clouds of the catalogue's machines, sorted.
func clouds(c *catalog.Catalog) []string {
	found := map[string]bool{}
	for _, s := range c.SKUs() {
		found[s.Cloud] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// regions returns the regions with prices of the given clouds, sorted; no cloud means all.
func regions(c *catalog.Catalog, of []string) []string {
	found := map[string]bool{}
	for _, s := range c.SKUs() {
		if len(of) > 0 && !slices.Contains(of, s.Cloud) {
			continue
		}
		for region := range s.Prices {
			found[region] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// near returns up to six names that share the longest prefix with the given name.
func near(name string, among []string) []string {
	const most = 6
	for length := len(name); length > 0; length-- {
		var out []string
		for _, other := range among {
			if strings.HasPrefix(other, strings.ToLower(name[:length])) {
				out = append(out, other)
			}
		}
		if len(out) > 0 {
			return out[:min(len(out), most)]
		}
	}
	return among[:min(len(among), most)]
}
