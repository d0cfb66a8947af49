"""Looking into what torch.compile runs, where no module's hook does."""
