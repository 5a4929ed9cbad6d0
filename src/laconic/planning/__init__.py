"""Pure planning: costs, timelines, searches and the knapsack."""
